// Keeps all files of the page, so that it works without a network once it was loaded.
// `SITE`, what there is to keep, is written above this line when a model is exported;
// with any other file this one changes, too, and the browser takes the new page.

const CACHE = `${registration.scope} ${SITE.version}`;
// The address of the folder stands for the page in it: some servers redirect
// index.html there, and a browser accepts no redirected page from here.
const PAGE = registration.scope;
const ADDRESSES = SITE.files.map(({ url }) => new URL(url, PAGE).href);

addEventListener("install", (event) => {
  event.waitUntil(keepFiles());
});

addEventListener("activate", (event) => {
  event.waitUntil(Promise.all([forgetOldFiles(), clients.claim()]));
});

addEventListener("fetch", (event) => {
  const address = event.request.url.split(/[?#]/)[0].replace(/\/index\.html$/, "/");
  if (event.request.method === "GET" && ADDRESSES.includes(address)) {
    event.respondWith(answer(address, event.request));
  }
});

async function keepFiles() {
  const cache = await caches.open(CACHE);
  // With their hashes: old and new files are never kept together.
  await cache.addAll(
    SITE.files.map(
      ({ url, integrity, pinned }) =>
        new Request(new URL(url, PAGE), { integrity, cache: pinned ? "default" : "no-cache" }),
    ),
  );
  await skipWaiting();
}

async function forgetOldFiles() {
  // Other folders of the same server may have pages of their own.
  const mine = (await caches.keys()).filter((name) => name.startsWith(`${PAGE} `));
  await Promise.all(mine.filter((name) => name !== CACHE).map((name) => caches.delete(name)));
}

async function answer(address, request) {
  return (await (await caches.open(CACHE)).match(address)) ?? fetch(request);
}
