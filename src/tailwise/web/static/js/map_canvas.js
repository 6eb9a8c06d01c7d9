/**
 * The canvas of the map: writes every point into the pixels of one image, which a processor does for 100,000 points in a
 * few milliseconds, so that no graphics card is needed. And the camera: what part of the map is seen.
 */

const FILL = 0.92; // of the shorter side, that the whole map takes
const MOST_ZOOM = 400;
const MOST_PIXELS = 3_000_000; // on large screens with small pixels a point may be as coarse as the screen's own
const FAINT = 0x30; // of 255: how strongly points are drawn that are not selected

/** @typedef {{scale: number, x: number, y: number}} Camera  px of the unit square's side, and of its left top corner */

/** @param {number} width @param {number} height @returns {Camera} the whole map */
export function wholeMap(width, height) {
  const scale = Math.max(1, FILL * Math.min(width, height));
  return { scale, x: (width - scale) / 2, y: (height - scale) / 2 };
}

/** @param {Camera} camera @param {number} factor @param {number} px @param {number} py @param {number} whole the scale of the whole map @returns {Camera} */
export function zoomedCamera({ scale, x, y }, factor, px, py, whole) {
  const next = Math.max(0.5 * whole, Math.min(MOST_ZOOM * whole, scale * factor));
  return { scale: next, x: px - ((px - x) * next) / scale, y: py - ((py - y) * next) / scale };
}

/** Some of the map stays in sight. @param {Camera} camera @param {number} width @param {number} height @returns {Camera} */
export function heldCamera({ scale, x, y }, width, height) {
  const [midX, midY] = [width / 2, height / 2];
  return { scale, x: Math.max(midX - scale, Math.min(midX, x)), y: Math.max(midY - scale, Math.min(midY, y)) };
}

/** From px of the canvas to the map. @param {Camera} camera @param {number} px @param {number} py @returns {[number, number]} */
export const toMap = ({ scale, x, y }, px, py) => [(px - x) / scale, 1 - (py - y) / scale];

/** From the map to px of the canvas. @param {Camera} camera @param {number} mx @param {number} my @returns {[number, number]} */
export const toCanvas = ({ scale, x, y }, mx, my) => [x + mx * scale, y + (1 - my) * scale];

/** The radius of a point in px: smaller where there are many, larger when one looks closer. @param {number} count @param {number} zoom */
export function radiusOf(count, zoom) {
  const base = count > 40_000 ? 1.2 : count > 8_000 ? 1.8 : count > 1_500 ? 2.6 : 3.6;
  return Math.min(9, base * Math.max(1, zoom) ** 0.35);
}

/** A colour as the four bytes of a pixel, on machines that store the lowest byte first: all that browsers run on. @param {string} hex "#rrggbb" @param {number} alpha */
export function pixelOf(hex, alpha = 255) {
  const number = parseInt(hex.slice(1), 16);
  return ((alpha << 24) | ((number & 255) << 16) | (number & 0xff00) | (number >> 16)) >>> 0;
}

/**
 * @typedef {object} Scene
 * @property {Float32Array} x
 * @property {Float32Array} y
 * @property {Uint32Array} order       the points in the order in which they are drawn
 * @property {Uint16Array} category    of each point
 * @property {string[]} colours        by category
 * @property {Uint8Array} hidden       1 where a point is not shown
 * @property {Uint8Array|null} chosen  1 where a point is selected; null without a selection
 */

/** @param {HTMLCanvasElement} canvas */
export function makeCanvas(canvas) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { willReadFrequently: true }));
  let image = context.createImageData(1, 1);
  let pixels = new Uint32Array(image.data.buffer);
  let ratio = 1; // pixels of the canvas in a px of the page

  /** @param {number} width @param {number} height in px of the page */
  function resize(width, height) {
    ratio = Math.min(globalThis.devicePixelRatio || 1, Math.sqrt(MOST_PIXELS / Math.max(1, width * height)));
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    image = context.createImageData(canvas.width, canvas.height);
    pixels = new Uint32Array(image.data.buffer);
  }

  /** @param {Scene} scene @param {Camera} camera @param {number} radius in px of the page */
  function draw(scene, camera, radius) {
    const { x, y, order, category, hidden, chosen } = scene;
    const { width, height } = canvas;
    const spans = disc(radius * ratio);
    const reach = (spans.length - 1) / 2;
    const [scale, left, top] = [camera.scale * ratio, camera.x * ratio, camera.y * ratio];
    const full = Uint32Array.from(scene.colours, (one) => pixelOf(one));
    const faint = Uint32Array.from(scene.colours, (one) => pixelOf(one, FAINT));
    pixels.fill(0);
    for (let place = 0; place < order.length; place += 1) {
      const at = order[place];
      if (hidden[at]) continue;
      const px = Math.round(left + x[at] * scale);
      const py = Math.round(top + (1 - y[at]) * scale);
      if (px < reach || py < reach || px >= width - reach || py >= height - reach) continue;
      const colour = chosen !== null && !chosen[at] ? faint[category[at]] : full[category[at]];
      let row = (py - reach) * width + px;
      for (let line = 0; line < spans.length; line += 1, row += width) {
        const half = spans[line];
        for (let pixel = row - half; pixel <= row + half; pixel += 1) pixels[pixel] = colour;
      }
    }
    context.putImageData(image, 0, 0);
  }

  return { resize, draw };
}

/** Half the width of each line of a disc, from its top to its bottom. @param {number} radius @returns {Int32Array} */
export function disc(radius) {
  const reach = Math.max(1, Math.round(radius));
  return Int32Array.from({ length: 2 * reach + 1 }, (_, line) => Math.floor(Math.sqrt(Math.max(0, (reach + 0.3) ** 2 - (line - reach) ** 2))));
}

/**
 * The order in which points are drawn: selected ones last, and before each those of the categories that lie below; otherwise as
 * they come, so that no class covers another one everywhere.
 * @param {Uint16Array} category @param {number} below categories under this number lie below @param {Uint8Array|null} chosen
 */
export function drawOrder(category, below, chosen) {
  const order = new Uint32Array(category.length);
  let place = 0;
  for (const turn of chosen ? [0, 1, 2, 3] : [0, 1]) {
    for (let at = 0; at < category.length; at += 1) {
      const own = (chosen?.[at] ? 2 : 0) + (category[at] < below ? 0 : 1);
      if (own === turn) order[place++] = at;
    }
  }
  return order;
}
