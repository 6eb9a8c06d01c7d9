/** Images ahead of time: the next ones are loaded and decoded before they are asked for, and shown without a new request. */
import { imageUrl } from './api.js';

const AHEAD = 5;
const BEHIND = 3;
const RETRY = 1_500; // ms

/** @type {Map<string, HTMLImageElement>} */
const ready = new Map();

/** The width that suits this screen: a phone needs no 1280 pixels. @returns {512|1280} */
const size = () => (Math.min(innerWidth, 900) * devicePixelRatio <= 512 ? 512 : 1280);

/** The image element of a key, loading or loaded. @param {string} key @returns {HTMLImageElement} */
export function picture(key) {
  const known = ready.get(key);
  if (known) return known;
  const image = new Image();
  image.draggable = false;
  image.dataset.key = key;
  image.addEventListener('error', () => setTimeout(() => reload(key, image), RETRY));
  image.src = imageUrl(key, size());
  ready.set(key, image);
  return image;
}

/** Try a failed image again, for as long as it is wanted. @param {string} key @param {HTMLImageElement} image */
function reload(key, image) {
  if (ready.get(key) !== image || (image.complete && image.naturalWidth)) return;
  const url = imageUrl(key, size());
  image.src = ''; // the same address again would not be fetched
  image.src = url;
}

/** A sharper copy, for zooming in. @param {HTMLImageElement} image */
export function sharpen(image) {
  const { key } = image.dataset;
  if (!key || image.dataset.sharp) return;
  image.dataset.sharp = 'yes';
  const large = new Image();
  large.addEventListener('load', () => (image.src = large.src));
  large.src = imageUrl(key, 2048);
}

/** Keep what is near the cursor, forget the rest. @param {{key: string}[]} items @param {number} cursor */
export function preload(items, cursor) {
  const near = items.slice(Math.max(0, cursor - BEHIND), cursor + AHEAD + 1).map((item) => item.key);
  const wanted = new Set(near);
  for (const key of ready.keys()) if (!wanted.has(key)) ready.delete(key);
  near.slice(Math.min(cursor, BEHIND)).forEach(picture);
}
