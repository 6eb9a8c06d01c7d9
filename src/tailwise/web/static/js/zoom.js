/** Looking closer: z, the wheel, two fingers; dragging moves the enlarged image; a swipe goes to the neighbour. */
import { held, zoomed } from './looks.js';
import { sharpen } from './preload.js';

const STEP = 2.5; // what the key does
const SHARP = 1.6; // from here on the large copy is worth loading
const SWIPE = 56; // px

/**
 * @param {HTMLElement} stage
 * @param {{swiped: (step: -1|1) => void, changed: (zoomed: boolean) => void}} callbacks
 */
export function makeZoom(stage, { swiped, changed }) {
  /** @type {import('./looks.js').Look} */ let look = { scale: 1, x: 0, y: 0 };
  /** @type {HTMLImageElement|null} */ let image = null;
  /** @type {Map<number, PointerEvent>} */ const fingers = new Map();
  /** @type {{x: number, y: number, many: boolean}|null} */ let start = null;
  let pointer = { x: 0, y: 0 };

  /** @param {import('./looks.js').Look} next */
  function show(next) {
    const box = stage.getBoundingClientRect();
    const was = look.scale > 1;
    look = held(next, box.width, box.height);
    if (image) {
      image.style.transform = look.scale === 1 ? '' : `translate(${look.x}px, ${look.y}px) scale(${look.scale})`;
      if (look.scale > SHARP) sharpen(image, look.scale * Math.max(box.width, box.height) * devicePixelRatio);
    }
    stage.classList.toggle('zoomed', look.scale > 1);
    if (was !== look.scale > 1) changed(look.scale > 1);
  }

  /** @param {{clientX: number, clientY: number}} at */
  function fromCentre(at) {
    const box = stage.getBoundingClientRect();
    return { x: at.clientX - box.left - box.width / 2, y: at.clientY - box.top - box.height / 2 };
  }

  function pinch(/** @type {PointerEvent} */ moved) {
    const [one, two] = [...fingers.values()];
    const other = one.pointerId === moved.pointerId ? two : one;
    const before = one.pointerId === moved.pointerId ? one : two;
    const span = (/** @type {PointerEvent} */ a) => Math.hypot(a.clientX - other.clientX, a.clientY - other.clientY);
    const middle = fromCentre({ clientX: (moved.clientX + other.clientX) / 2, clientY: (moved.clientY + other.clientY) / 2 });
    show(zoomed(look, span(moved) / Math.max(1, span(before)), middle.x, middle.y));
  }

  stage.addEventListener('wheel', (event) => {
    event.preventDefault();
    const { x, y } = fromCentre(event);
    show(zoomed(look, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0022)), x, y));
  }, { passive: false });

  stage.addEventListener('pointerdown', (event) => {
    if (event.button || (event.target instanceof Element && event.target.closest('button'))) return;
    fingers.set(event.pointerId, event);
    start = { x: event.clientX, y: event.clientY, many: fingers.size > 1 || Boolean(start?.many) };
    try { stage.setPointerCapture(event.pointerId); } catch { /* the finger is gone already */ }
  });

  stage.addEventListener('pointermove', (event) => {
    pointer = fromCentre(event);
    const before = fingers.get(event.pointerId);
    if (!before) return;
    if (fingers.size === 2) pinch(event);
    else if (look.scale > 1) show({ ...look, x: look.x + event.clientX - before.clientX, y: look.y + event.clientY - before.clientY });
    fingers.set(event.pointerId, event);
  });

  /** @param {PointerEvent} event */
  function lift(event) {
    if (!fingers.delete(event.pointerId) || !start) return;
    const dx = event.clientX - start.x;
    const flat = Math.abs(event.clientY - start.y) < Math.abs(dx) / 1.5;
    const swipe = event.type === 'pointerup' && !start.many && look.scale === 1 && flat && Math.abs(dx) > SWIPE;
    if (!fingers.size) start = null;
    if (swipe) swiped(dx > 0 ? -1 : 1);
  }
  stage.addEventListener('pointerup', lift);
  stage.addEventListener('pointercancel', lift);

  return {
    /** A new image: from the start. @param {HTMLImageElement|null} next */
    attach(next) {
      if (image) image.style.transform = '';
      image = next;
      show({ scale: 1, x: 0, y: 0 });
    },
    toggle: () => show(look.scale > 1 ? { scale: 1, x: 0, y: 0 } : zoomed(look, STEP, pointer.x, pointer.y)),
    reset: () => show({ scale: 1, x: 0, y: 0 }),
  };
}
