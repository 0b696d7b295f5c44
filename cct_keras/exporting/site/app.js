/** The page: pictures in, cards with answers out. All texts are set as text. */

import { decode, loadClassifier } from "./classifier.js";
import { enlarge } from "./pixels.js";

const SHOWN_CLASSES = 5;
// Pictures are kept in this size at most, and tiny ones are shown with visible pixels.
const SHOWN_SIDE = 640;
const TINY_SIDE = 96;
const MOST_HEIGHT = "26rem";
// Longer side of a drawn map, and its colors from little to much weight: red, green,
// blue and opacity. Where there is little, the picture shows.
const MAP_SIDE = 256;
const MAP_COLORS = [
  [70, 0, 140, 0.12],
  [220, 0, 130, 0.5],
  [255, 120, 40, 0.68],
  [255, 240, 90, 0.85],
];
const MOST_LISTED = 2000;

const percent = new Intl.NumberFormat("en", {
  style: "percent",
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});
const element = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const plural = (count, one, many) => `${number.format(count)} ${count === 1 ? one : many}`;

let classifier;
let results = [];
let stream = null;
let taken = 0;
// Pictures that come while the model loads wait for it.
let modelIsReady;
let queue = new Promise((resolve) => {
  modelIsReady = resolve;
});
let broken = false;
let waiting = 0;
let finished = 0;

start();

async function start() {
  element("waiting").remove();
  say("Loading the model and its runtime …");
  listen();
  try {
    classifier = await loadClassifier();
  } catch (error) {
    broken = true;
    say(`The model cannot be started: ${firstLine(error)}`, true);
    return;
  }
  describe(classifier.metadata);
  element("start").hidden = false;
  if (!waiting) {
    say("Ready.");
  }
  modelIsReady();
  keepOffline();
}

// === What the page tells of the model ===

function describe(metadata) {
  const { class_names: names, image_size: [height, width], channels } = metadata;
  const title = metadata.name || metadata.variant || "Picture classifier";
  document.title = `${title} – picture classifier`;
  element("title").textContent = title;
  const facts = [
    plural(names.length, "class", "classes"),
    `${height} × ${width} pixels${channels === 1 ? ", gray" : ""}`,
    metadata.precision,
  ];
  if (metadata.variant && metadata.variant !== title) {
    facts.unshift(metadata.variant);
  }
  if (metadata.trained_on) {
    facts.push(`trained on ${metadata.trained_on.name}`);
  }
  element("facts").textContent = facts.join(" · ");
  if (metadata.license) {
    element("license").textContent = `License of the weights: ${metadata.license}`;
    element("license").hidden = false;
  }
  const { name, version } = metadata.runtime;
  element("origin").textContent = `Made with ${metadata.package} ${metadata.version}, runs on ${name} ${version}.`;
  element("footer").hidden = false;
  element("map-choice").hidden = !metadata.maps;
  element("classes").hidden = false;
  // Made when it is opened: there may be thousands.
  element("classes").addEventListener("toggle", () => listClasses(names), { once: true });
}

function listClasses(names) {
  const items = names.slice(0, MOST_LISTED).map((name) => {
    const item = document.createElement("li");
    item.dir = "auto";
    item.textContent = name;
    return item;
  });
  if (names.length > MOST_LISTED) {
    items.push(`and ${number.format(names.length - MOST_LISTED)} more`);
  }
  element("classes").querySelector("ul").append(...items);
}

// === Ways in ===

function listen() {
  const chosen = () => {
    add([...element("files").files]);
    // So that the same picture can be chosen again.
    element("files").value = "";
  };
  element("files").addEventListener("change", chosen);
  if (element("files").files.length) {
    chosen();
  }
  addEventListener("paste", ({ clipboardData }) => {
    take(clipboardData.files, "There is no picture to paste.");
  });
  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  addEventListener("dragleave", ({ relatedTarget }) => {
    if (!relatedTarget) {
      document.body.classList.remove("dragging");
    }
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    take(event.dataTransfer.files, "Only files can be dropped: save the picture first.");
  });
  element("show-maps").addEventListener("change", ({ target }) => {
    document.body.classList.toggle("without-maps", !target.checked);
  });
  element("save").addEventListener("click", save);
  element("clear").addEventListener("click", clear);
  element("camera-start").addEventListener("click", startCamera);
  element("camera-take").addEventListener("click", takePicture);
  element("camera-stop").addEventListener("click", stopCamera);
  addEventListener("pagehide", stopCamera);
  if (!navigator.mediaDevices?.getUserMedia) {
    element("camera-start").disabled = true;
    element("camera-note").textContent = "The camera needs a page from https or localhost.";
    element("camera-note").hidden = false;
  }
}

function take(files, otherwise) {
  if (files.length) {
    add([...files]);
  } else {
    say(otherwise);
  }
}

async function startCamera() {
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    say(`The camera cannot be used: ${firstLine(error)}`, true);
    return;
  }
  const video = element("video");
  video.srcObject = stream;
  await video.play();
  element("camera").hidden = false;
  element("camera-start").disabled = true;
  element("camera-take").focus();
}

async function takePicture() {
  taken += 1;
  add([await createImageBitmap(element("video"))], `camera ${taken}`);
}

function stopCamera() {
  if (!stream) {
    return;
  }
  stream.getTracks().forEach((track) => track.stop());
  stream = element("video").srcObject = null;
  element("camera").hidden = true;
  element("camera-start").disabled = false;
  element("camera-start").focus();
}

// === Pictures, one after the other ===

/** Queues pictures; the cards of the latest ones come first, in their own order. */
function add(pictures, name) {
  if (broken) {
    return;
  }
  const before = element("cards").firstElementChild;
  waiting += pictures.length;
  for (const picture of pictures) {
    queue = queue.then(() => show(picture, name ?? picture.name, before));
  }
  queue = queue.then(settle);
  showProgress();
}

async function show(picture, name, before) {
  const card = element("card").content.firstElementChild.cloneNode(true);
  card.querySelector("h2").textContent = name;
  const result = { name, card };
  try {
    Object.assign(result, await classify(picture, card));
    fill(card, result);
  } catch (error) {
    result.error = error instanceof DOMException
      ? "Not a picture that this browser can read." : firstLine(error);
    card.querySelector(".frame").remove();
    card.querySelector(".bars").remove();
    card.querySelector(".time").className = "time wrong";
    card.querySelector(".time").textContent = result.error;
  }
  results.push(result);
  const cards = element("cards");
  cards.insertBefore(card, before?.isConnected ? before : null);
  element("results").hidden = false;
  finished += 1;
  showProgress();
  // Lets the browser draw, and answer the keyboard, between two pictures.
  await new Promise((resolve) => setTimeout(resolve));
}

async function classify(picture, card) {
  const begin = performance.now();
  const bitmap = picture instanceof ImageBitmap ? picture : await decode(picture);
  const answer = await classifier.classify(bitmap);
  const milliseconds = performance.now() - begin;
  drawPicture(card.querySelector("canvas"), bitmap);
  const size = [bitmap.height, bitmap.width];
  bitmap.close();
  return { ...answer, milliseconds, size };
}

function settle() {
  if (finished < waiting) {
    return;
  }
  const last = results.at(-1);
  const failed = results.slice(-finished).filter(({ error }) => error).length;
  if (finished === 1 && last) {
    say(`${last.name}: ${last.error ?? sentence(last)}`, failed > 0);
    last.card.scrollIntoView({ block: "nearest" });
  } else {
    const times = results.slice(-finished).filter(({ error }) => !error).map(({ milliseconds }) => milliseconds);
    const mean = times.reduce((a, b) => a + b, 0) / times.length;
    const speed = times.length ? `, ${duration(mean)} each` : "";
    const trouble = failed ? `; ${number.format(failed)} could not be read` : "";
    say(`${plural(times.length, "picture", "pictures")} classified${speed}${trouble}.`);
  }
  waiting = finished = 0;
  showProgress();
}

function showProgress() {
  const progress = element("progress");
  progress.hidden = waiting < 2;
  progress.max = Math.max(1, waiting);
  progress.value = finished;
}

// === Cards ===

function fill(card, { name, probabilities, map, box, size, milliseconds, model_milliseconds }) {
  const { class_names: names, maps: grid } = classifier.metadata;
  card.querySelector("canvas").setAttribute("aria-label", `The picture ${name}`);
  const bars = likeliest(probabilities).map((index) => {
    const bar = element("bar").content.firstElementChild.cloneNode(true);
    bar.querySelector(".name").textContent = names[index];
    bar.querySelector(".percent").textContent = percent.format(probabilities[index]);
    bar.querySelector(".fill").style.width = `${100 * probabilities[index]}%`;
    return bar;
  });
  card.querySelector(".bars").append(...bars);
  card.querySelector(".time").textContent = `${duration(milliseconds)}, of which the model ${duration(model_milliseconds)}`;
  const canvas = card.querySelector(".map");
  if (map) {
    drawMap(canvas, map, grid, box);
    placeOver(canvas, box, size);
    canvas.setAttribute("aria-label", `The model looks mostly at the ${strongest(map, grid)} of it`);
    canvas.hidden = false;
  } else {
    canvas.remove();
  }
}

function likeliest(probabilities) {
  // A stable sort: of equal classes the first one wins, as in Python.
  return [...probabilities.keys()]
    .sort((a, b) => probabilities[b] - probabilities[a])
    .slice(0, SHOWN_CLASSES);
}

function sentence({ probabilities }) {
  const [best] = likeliest(probabilities);
  return `${classifier.metadata.class_names[best]}, ${percent.format(probabilities[best])}.`;
}

function drawPicture(canvas, bitmap) {
  const scale = Math.min(1, SHOWN_SIDE / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.classList.toggle("tiny", Math.max(bitmap.width, bitmap.height) <= TINY_SIDE);
  canvas.parentElement.style.maxWidth = `calc(${MOST_HEIGHT} * ${bitmap.width / bitmap.height})`;
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
}

function drawMap(canvas, map, grid, [top, left, bottom, right]) {
  const scale = MAP_SIDE / Math.max(bottom - top, right - left);
  const height = Math.max(1, Math.round((bottom - top) * scale));
  const width = Math.max(1, Math.round((right - left) * scale));
  [canvas.height, canvas.width] = [height, width];
  const values = enlarge(map, grid, [height, width]);
  const low = map.reduce((a, b) => Math.min(a, b));
  const range = map.reduce((a, b) => Math.max(a, b)) - low || 1;
  const image = new ImageData(width, height);
  values.forEach((value, index) => {
    const at = ((value - low) / range) * (MAP_COLORS.length - 1);
    const first = Math.min(Math.max(Math.floor(at), 0), MAP_COLORS.length - 2);
    MAP_COLORS[first].forEach((part, channel) => {
      const mixed = part + (at - first) * (MAP_COLORS[first + 1][channel] - part);
      image.data[4 * index + channel] = channel === 3 ? 255 * mixed : mixed;
    });
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Puts a map over the part of the picture that the model saw. */
function placeOver(canvas, [top, left, bottom, right], [height, width]) {
  canvas.classList.toggle("part", bottom - top < height || right - left < width);
  canvas.style.top = `${(100 * top) / height}%`;
  canvas.style.left = `${(100 * left) / width}%`;
  canvas.style.height = `${(100 * (bottom - top)) / height}%`;
  canvas.style.width = `${(100 * (right - left)) / width}%`;
}

/** Where a map is strongest, in words. */
function strongest(map, [rows, columns]) {
  const index = map.indexOf(map.reduce((a, b) => Math.max(a, b)));
  const third = (at, count, words) => words[Math.floor((3 * (at + 0.5)) / count)];
  const row = third(Math.floor(index / columns), rows, ["upper", "middle", "lower"]);
  const column = third(index % columns, columns, ["left", "center", "right"]);
  return `${row} ${column}`;
}

// === The rest ===

function save() {
  const content = {
    class_names: classifier.metadata.class_names,
    map_shape: classifier.metadata.maps,
    pictures: results.map(({ name, error, probabilities, map, milliseconds }) =>
      error
        ? { name, error }
        : { name, probabilities: [...probabilities], map: map && [...map], milliseconds },
    ),
  };
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(content)], { type: "application/json" }));
  link.download = "results.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function clear() {
  results = [];
  element("cards").replaceChildren();
  element("results").hidden = true;
  say("Cleared.");
  element("files").focus();
}

async function keepOffline() {
  if (!navigator.serviceWorker) {
    return;
  }
  const updated = Boolean(navigator.serviceWorker.controller);
  navigator.serviceWorker.addEventListener("controllerchange", () => {
    if (updated) {
      say("There is a new version of this page: reload it to use it.");
    }
  });
  try {
    await navigator.serviceWorker.register("service-worker.js");
    await navigator.serviceWorker.ready;
  } catch {
    // A browser may refuse to keep files; the page works all the same.
    return;
  }
  element("offline").hidden = false;
}

function duration(milliseconds) {
  return milliseconds < 1000
    ? `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`
    : `${(milliseconds / 1000).toFixed(1)} s`;
}

function say(text, wrong = false) {
  element("status").textContent = text;
  element("status").classList.toggle("wrong", wrong);
}

function firstLine(error) {
  return String(error?.message ?? error).split("\n")[0];
}
