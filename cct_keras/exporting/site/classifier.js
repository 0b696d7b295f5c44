/**
 * The model of this folder, for any page:
 *
 *     import { loadClassifier } from "./classifier.js";
 *
 *     const classifier = await loadClassifier();
 *     const { probabilities, map, milliseconds } = await classifier.classify(file);
 *     console.log(classifier.metadata.class_names, probabilities);
 *
 * It runs on onnxruntime-web, in WebAssembly. Pictures stay where they are.
 */

import { prepare, softmax } from "./pixels.js";

// More threads do not make models as small as these faster.
const MOST_THREADS = 4;

/**
 * Loads the model and its runtime.
 *
 * @param {string | URL} [folder] Where model.json is; beside this file by default.
 * @returns {Promise<Classifier>}
 */
export async function loadClassifier(folder = import.meta.url) {
  const metadata = await (await load({ url: "model.json" }, folder)).json();
  const { script, wasm } = metadata.runtime;
  const [model, code, binary] = await Promise.all(
    [metadata.model, script, wasm].map(async (file) => (await load(file, folder)).arrayBuffer()),
  );
  // Run from the bytes whose hash was checked; an import by address would check none.
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const ort = await import(address);
  ort.env.logLevel = "error";
  ort.env.wasm.wasmBinary = binary;
  // A page has threads only where its server isolates it from other pages.
  ort.env.wasm.numThreads = globalThis.crossOriginIsolated
    ? Math.min(MOST_THREADS, navigator.hardwareConcurrency ?? 1)
    : 1;
  const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  const classifier = new Classifier(metadata, ort, session);
  // The first run of a session prepares its memory, and would count for a picture.
  await classifier.classify(new ImageData(1, 1));
  return classifier;
}

/** Decodes a picture file: upright, and with its colors as they are stored. */
export function decode(file) {
  return createImageBitmap(file, {
    imageOrientation: "from-image",
    colorSpaceConversion: "none",
    premultiplyAlpha: "none",
  });
}

/** A model that answers for one picture at a time. */
export class Classifier {
  /** Made by `loadClassifier`. `metadata` is what model.json tells of the model. */
  constructor(metadata, ort, session) {
    this.metadata = metadata;
    this.ort = ort;
    this.session = session;
  }

  /**
   * Classifies a picture.
   *
   * @param {Blob | ImageBitmap | ImageData | HTMLCanvasElement | HTMLVideoElement} picture
   * @returns {Promise<{probabilities: Float32Array, map: ?Float32Array, box: number[],
   *   milliseconds: number, model_milliseconds: number}>} The probability of each of
   *   `metadata.class_names`; the weights of SeqPool, `metadata.maps` rows and columns
   *   that sum to 1, or null; top, left, bottom and right of what the model saw; the
   *   time, and how much of it the model took.
   */
  async classify(picture) {
    const begin = performance.now();
    const { metadata, session } = this;
    const { pixels, box } = prepare(await open(picture), metadata);
    const input = new this.ort.Tensor(
      metadata.input_dtype,
      arrange(pixels, metadata),
      inputShape(metadata),
    );
    const modelBegin = performance.now();
    const outputs = await session.run({ [session.inputNames[0]]: input });
    const end = performance.now();
    // A graph of a fixed batch answers for the empty pictures behind ours, too.
    const first = ({ data, dims }) => data.slice(0, data.length / dims[0]);
    const scores = first(outputs[metadata.output]);
    return {
      probabilities: metadata.output === "logits" ? softmax(scores) : scores,
      map: metadata.maps ? first(outputs.maps) : null,
      box,
      milliseconds: end - begin,
      model_milliseconds: end - modelBegin,
    };
  }
}

async function load({ url, integrity, pinned }, folder) {
  const address = new URL(url, folder);
  // The server is asked each time: an old file in the cache of the browser must not
  // meet a new one. What is pinned has its version in its address, and never changes.
  const cache = pinned ? "default" : "no-cache";
  let response;
  try {
    response = await fetch(address, { cache, integrity });
  } catch {
    throw new Error(`${address} cannot be loaded, or is not the file that belongs here`);
  }
  if (!response.ok) {
    throw new Error(`${address} cannot be loaded: ${response.status} ${response.statusText}`);
  }
  return response;
}

/** Makes the parts of a picture readable, over white. */
async function open(picture) {
  const bitmap = picture instanceof ImageBitmap ? picture : await decode(picture);
  const { height, width } = bitmap;
  const read = (top, left, rows, columns) => {
    const canvas = new OffscreenCanvas(columns, rows);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = "white";
    context.fillRect(0, 0, columns, rows);
    context.drawImage(bitmap, left, top, columns, rows, 0, 0, columns, rows);
    return context.getImageData(0, 0, columns, rows).data;
  };
  return { height, width, read };
}

/** The pixels in the type, the layout and the batch that the graph takes. */
function arrange(pixels, { image_size: [height, width], channels, layout, input_dtype, batch }) {
  const Type = input_dtype === "uint8" ? Uint8Array : Float32Array;
  const input = new Type((batch ?? 1) * pixels.length);
  if (layout === "nhwc") {
    input.set(pixels);
    return input;
  }
  const plane = height * width;
  for (let i = 0; i < pixels.length; i++) {
    input[(i % channels) * plane + Math.floor(i / channels)] = pixels[i];
  }
  return input;
}

function inputShape({ image_size: [height, width], channels, layout, batch }) {
  return layout === "nchw"
    ? [batch ?? 1, channels, height, width]
    : [batch ?? 1, height, width, channels];
}
