/**
 * From the pixels of a picture to the pixels that the model takes.
 *
 * Plain arithmetic without a browser. It computes what `cct_keras` computes with
 * Pillow, to the last bit: a canvas would resize with other filters, and the model
 * would see other pictures than those it was trained on.
 */

// Rows that are read at a time, so that a large photo never lies in memory twice.
const STRIP = 256;

/**
 * Cuts the center out of a picture and resizes it.
 *
 * @param source `{height, width, read}`, where `read(top, left, height, width)` returns
 *   the opaque RGBA bytes of a part of the picture.
 * @param {{image_size: number[], channels: number, crop: number,
 *   interpolation: string}} settings What the model takes, as in model.json.
 * @returns {{pixels: Uint8Array, box: number[]}} Bytes in the order height, width,
 *   channels; and top, left, bottom and right of what was cut out.
 */
export function prepare(source, settings) {
  const [height, width] = settings.image_size;
  const { channels } = settings;
  // A picture of exactly the right size counts as cut already.
  const fits = source.height === height && source.width === width;
  const box = centralBox(source.height, source.width, [height, width], fits ? 1 : settings.crop);
  const [top, left, bottom, right] = box;
  const across = findTaps(right - left, width, settings.interpolation);
  const down = findTaps(bottom - top, height, settings.interpolation);

  // Rows first, then columns, with float32 between the two, as Pillow does it.
  const wide = new Float32Array((bottom - top) * width * channels);
  for (let row = top, at = 0; row < bottom; row += STRIP) {
    const rows = Math.min(STRIP, bottom - row);
    const bytes = source.read(row, left, rows, right - left);
    if (channels === 1) {
      toGray(bytes);
    }
    for (let y = 0; y < rows; y++) {
      const line = 4 * y * (right - left);
      for (let x = 0; x < width; x++) {
        const { start, weights } = across[x];
        for (let channel = 0; channel < channels; channel++) {
          let sum = 0;
          for (let k = 0, i = line + 4 * start + channel; k < weights.length; k++, i += 4) {
            sum += bytes[i] * weights[k];
          }
          wide[at++] = sum;
        }
      }
    }
  }
  const pixels = new Uint8Array(height * width * channels);
  const line = width * channels;
  for (let y = 0; y < height; y++) {
    const { start, weights } = down[y];
    for (let x = 0; x < line; x++) {
      let sum = 0;
      for (let k = 0, i = start * line + x; k < weights.length; k++, i += line) {
        sum += wide[i] * weights[k];
      }
      pixels[y * line + x] = roundToEven(Math.min(Math.max(Math.fround(sum), 0), 255));
    }
  }
  return { pixels, box };
}

/** Finds the largest centered box of an aspect ratio, or a share of it. */
export function centralBox(height, width, [rows, columns], crop) {
  const share = roundToEven(10000 * crop);
  const part = (side, other) =>
    Math.max(1, Math.floor((Math.min(side, Math.floor(other)) * share) / 10000));
  const boxHeight = part(height, (width * rows) / columns);
  const boxWidth = part(width, (height * columns) / rows);
  const top = Math.floor((height - boxHeight) / 2);
  const left = Math.floor((width - boxWidth) / 2);
  return [top, left, top + boxHeight, left + boxWidth];
}

/**
 * Enlarges a map smoothly.
 *
 * @param {ArrayLike<number>} values `rows * columns` numbers.
 * @returns {Float32Array} `height * width` numbers, those at the border repeated.
 */
export function enlarge(values, [rows, columns], [height, width]) {
  const place = (index, size, cells) => {
    const at = Math.min(Math.max(((index + 0.5) * cells) / size - 0.5, 0), cells - 1);
    const low = Math.floor(at);
    return [low, Math.min(low + 1, cells - 1), at - low];
  };
  const large = new Float32Array(height * width);
  for (let y = 0; y < height; y++) {
    const [above, below, down] = place(y, height, rows);
    for (let x = 0; x < width; x++) {
      const [left, right, across] = place(x, width, columns);
      const mix = (row) =>
        (1 - across) * values[row * columns + left] + across * values[row * columns + right];
      large[y * width + x] = (1 - down) * mix(above) + down * mix(below);
    }
  }
  return large;
}

/** Probabilities of logits. */
export function softmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  const powers = Float64Array.from(logits, (logit) => Math.exp(logit - largest));
  const sum = powers.reduce((a, b) => a + b);
  return Float32Array.from(powers, (power) => power / sum);
}

// The filters and how far they reach; Pillow's bicubic has a = -0.5.
const FILTERS = {
  bicubic: {
    reach: 2,
    weigh(x) {
      x = Math.abs(x);
      if (x < 1) {
        return (1.5 * x - 2.5) * x * x + 1;
      }
      return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
    },
  },
  bilinear: { reach: 1, weigh: (x) => Math.max(0, 1 - Math.abs(x)) },
};

/** For each pixel of the result: where its first source pixel is, and their weights. */
function findTaps(before, after, interpolation) {
  if (interpolation === "nearest") {
    return findNearest(before, after);
  }
  const { reach, weigh } = FILTERS[interpolation];
  const scale = before / after;
  // Where a picture shrinks, the filter becomes wider: no pixel is left out.
  const stretch = Math.max(1, scale);
  return Array.from({ length: after }, (_, index) => {
    const center = (index + 0.5) * scale;
    const start = Math.max(0, Math.trunc(center - reach * stretch + 0.5));
    const end = Math.min(before, Math.trunc(center + reach * stretch + 0.5));
    const weights = new Float64Array(end - start);
    let sum = 0;
    for (let k = 0; k < weights.length; k++) {
      weights[k] = weigh((k + start - center + 0.5) * (1 / stretch));
      sum += weights[k];
    }
    return { start, weights: sum === 0 ? weights : weights.map((weight) => weight / sum) };
  });
}

function findNearest(before, after) {
  const scale = before / after;
  const weights = Float64Array.of(1);
  const taps = [];
  // Added up, as Pillow does it: a product would round differently now and then.
  for (let at = scale * 0.5; taps.length < after; at += scale) {
    taps.push({ start: Math.min(Math.trunc(at), before - 1), weights });
  }
  return taps;
}

/** Replaces the red of each pixel by its gray, with the whole numbers of Pillow. */
function toGray(bytes) {
  for (let i = 0; i < bytes.length; i += 4) {
    const gray = bytes[i] * 19595 + bytes[i + 1] * 38470 + bytes[i + 2] * 7471 + 0x8000;
    bytes[i] = gray >> 16;
  }
}

function roundToEven(value) {
  const low = Math.floor(value);
  const rest = value - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 === 1) ? low + 1 : low;
}
