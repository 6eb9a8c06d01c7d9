/** Mouse, pen, fingers and wheel on the map, as what they mean: move, zoom, look, open, lasso. */

const STILL = 5; // px that a click may move
const WHEEL = 0.0016; // of zoom for each px
const APART = 4; // px between two corners of a lasso

/**
 * @param {HTMLElement} stage
 * @param {object} acts
 * @param {(dx: number, dy: number) => void} acts.pan
 * @param {(factor: number, px: number, py: number) => void} acts.zoom
 * @param {(px: number, py: number) => void} acts.look        the pointer is here
 * @param {() => void} acts.leave
 * @param {(px: number, py: number, touched: boolean) => void} acts.press
 * @param {() => boolean} acts.lassoing                       whether a drag is a lasso
 * @param {(corners: [number, number][], done: boolean) => void} acts.lasso
 */
export function listenToGestures(stage, acts) {
  /** @type {Map<number, [number, number]>} */ const down = new Map();
  /** @type {[number, number][]|null} */ let corners = null;
  let travelled = 0;

  /** @param {MouseEvent} event @returns {[number, number]} */
  const placeOf = (event) => {
    const { left, top } = stage.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };

  stage.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || (event.target instanceof Element && event.target.closest('button, a'))) return;
    stage.setPointerCapture(event.pointerId);
    down.set(event.pointerId, placeOf(event));
    if (down.size === 1) {
      travelled = 0;
      corners = acts.lassoing() || event.shiftKey ? [placeOf(event)] : null;
    } else if (corners) {
      corners = null; // a second finger: not a lasso
      acts.lasso([], false);
    }
  });

  stage.addEventListener('pointermove', (event) => {
    const now = placeOf(event);
    const before = down.get(event.pointerId);
    if (!before) return acts.look(...now);
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    travelled += Math.hypot(dx, dy);
    if (down.size === 2) pinch(event.pointerId, before, now);
    else if (corners) extend(now);
    else if (down.size === 1) acts.pan(dx, dy);
    down.set(event.pointerId, now);
  });

  /** Two fingers: what lies between them stays there. @param {number} id @param {[number, number]} before @param {[number, number]} now */
  function pinch(id, before, now) {
    const other = /** @type {[number, number]} */ ([...down].find(([one]) => one !== id)?.[1]);
    const length = (/** @type {[number, number]} */ one) => Math.max(1, Math.hypot(one[0] - other[0], one[1] - other[1]));
    acts.pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
    acts.zoom(length(now) / length(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
  }

  /** @param {[number, number]} now */
  function extend(now) {
    if (!corners) return;
    const last = corners[corners.length - 1];
    if (Math.hypot(now[0] - last[0], now[1] - last[1]) >= APART) corners.push(now);
    acts.lasso(corners, false);
  }

  /** @param {PointerEvent} event */
  function up(event) {
    if (!down.delete(event.pointerId) || down.size) return;
    const drawn = corners;
    corners = null;
    if (event.type === 'pointercancel') return drawn ? acts.lasso([], false) : undefined;
    if (drawn && travelled > STILL) return acts.lasso(drawn, true);
    if (travelled <= STILL) acts.press(...placeOf(event), event.pointerType === 'touch');
  }
  stage.addEventListener('pointerup', up);
  stage.addEventListener('pointercancel', up);
  stage.addEventListener('pointerleave', () => down.size || acts.leave());
  stage.addEventListener('wheel', (event) => {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    acts.zoom(Math.exp(-event.deltaY * lines * WHEEL), ...placeOf(event));
  }, { passive: false });
}
