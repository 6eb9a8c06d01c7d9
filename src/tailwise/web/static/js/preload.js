/** Images ahead of time: the next ones are loaded and decoded before they are asked for, and shown without a new request. */
import { imageUrl } from './api.js';

const AHEAD = 5;
const BEHIND = 3;
const RETRY = 1_500; // ms
const SHARP = 2048; // px
const FULL = 8192;

/** @typedef {import('./types.js').Picture} Picture */

/** @type {Map<string, HTMLImageElement>} */
const ready = new Map();
/** @type {WeakSet<HTMLImageElement>} */ const decoded = new WeakSet();

/** Whether an image can be painted at once. @param {HTMLImageElement} image */
export const isDecoded = (image) => decoded.has(image);

/** The width that suits this screen: a phone needs no 1280 pixels. @returns {512|1280} */
const size = () => (Math.min(innerWidth, 900) * devicePixelRatio <= 512 ? 512 : 1280);

/** The image element of an image, loading or loaded. @param {Picture} item @returns {HTMLImageElement} */
export function picture(item) {
  const { key, seal = '' } = item;
  const known = ready.get(key);
  if (known && known.dataset.seal === seal) return known;
  const image = new Image();
  image.draggable = false;
  image.dataset.key = key;
  image.dataset.seal = seal;
  image.addEventListener('error', () => setTimeout(() => reload(item, image), RETRY));
  image.addEventListener('load', async () => {
    await image.decode().catch(() => {}); // what cannot be decoded has no size
    if (!image.naturalWidth) return;
    decoded.add(image);
    image.dispatchEvent(new Event('decoded'));
  });
  image.src = imageUrl(item, size());
  ready.set(key, image);
  return image;
}

/** Try a failed image again, for as long as it is wanted. @param {Picture} item @param {HTMLImageElement} image */
function reload(item, image) {
  if (ready.get(item.key) !== image || (image.complete && image.naturalWidth)) return;
  const url = imageUrl(item, size());
  image.src = ''; // the same address again would not be fetched
  image.src = url;
}

/**
 * A sharper copy, for zooming in: of 2048 pixels, or all that the image has.
 * @param {HTMLImageElement} image @param {number} wanted pixels of the longer side, as it is drawn now
 */
export function sharpen(image, wanted) {
  const { key, seal } = image.dataset;
  const size = wanted <= SHARP ? SHARP : FULL;
  const asked = Number(image.dataset.sharp ?? 0);
  const whole = Math.max(image.naturalWidth, image.naturalHeight) < Number(image.dataset.loaded ?? 0); // it has no more pixels
  if (!key || asked >= size || whole) return;
  image.dataset.sharp = String(size);
  const large = new Image();
  large.addEventListener('load', async () => {
    await large.decode().catch(() => {});
    if (image.dataset.sharp !== String(size)) return;
    image.src = large.src;
    image.dataset.loaded = String(size);
  });
  large.src = imageUrl({ key, seal }, size);
}

/** Keep what is near the cursor, forget the rest. @param {Picture[]} items @param {number} cursor */
export function preload(items, cursor) {
  const near = items.slice(Math.max(0, cursor - BEHIND), cursor + AHEAD + 1);
  const wanted = new Set(near.map((item) => item.key));
  for (const key of ready.keys()) if (!wanted.has(key)) ready.delete(key);
  near.slice(Math.min(cursor, BEHIND)).forEach(picture);
}
