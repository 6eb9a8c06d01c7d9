/** How an image is looked at: enlarged by a scale, shifted from the centre of the stage. Pure functions. */

const MOST = 12;

/** @typedef {{scale: number, x: number, y: number}} Look   x, y: shift of the centre in px */

/**
 * The look after zooming by a factor about a point, measured from the centre of the stage.
 * @param {Look} look @param {number} factor @param {number} px @param {number} py @returns {Look}
 */
export function zoomed(look, factor, px, py) {
  const scale = Math.max(1, Math.min(MOST, look.scale * factor));
  if (scale === 1) return { scale, x: 0, y: 0 };
  const grown = scale / look.scale;
  return { scale, x: px - (px - look.x) * grown, y: py - (py - look.y) * grown };
}

/** Never farther than the image's edge. @param {Look} look @param {number} width @param {number} height @returns {Look} */
export function held(look, width, height) {
  const most = (/** @type {number} */ side) => ((look.scale - 1) * side) / 2;
  const clamp = (/** @type {number} */ value, /** @type {number} */ limit) => Math.max(-limit, Math.min(limit, value));
  return { scale: look.scale, x: clamp(look.x, most(width)), y: clamp(look.y, most(height)) };
}
