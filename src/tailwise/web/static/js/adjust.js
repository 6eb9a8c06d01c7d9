/** Brightness and contrast of the image on show: two sliders under it, kept for all images of this browser. */
import { byId, h } from './dom.js';

const KEEP = 'tailwise.adjust';
const NEUTRAL = { brightness: 100, contrast: 100 };
/** @type {[keyof typeof NEUTRAL, string][]} */
const SLIDERS = [['brightness', 'Brightness'], ['contrast', 'Contrast']];

/** @returns {typeof NEUTRAL} */
function kept() {
  try {
    return { ...NEUTRAL, ...JSON.parse(localStorage.getItem(KEEP) ?? '{}') };
  } catch {
    return { ...NEUTRAL };
  }
}

/** @param {{changed: (adjusted: boolean) => void}} callbacks called with whether images look other than they are */
export function makeAdjust({ changed }) {
  const value = kept();
  const boxes = SLIDERS.map(([name, text]) => {
    const box = /** @type {HTMLInputElement} */ (h('input', { type: 'range', min: '20', max: '300', step: '5', 'aria-label': text, 'data-adjust': name }));
    box.addEventListener('input', () => {
      value[name] = Number(box.value);
      apply();
    });
    return box;
  });
  const reset = h('button', { class: 'link', type: 'button', onclick: () => { Object.assign(value, NEUTRAL); apply(); } }, 'Reset');
  const panel = h('div', { class: 'adjust', role: 'group', 'aria-label': 'Brightness and contrast', hidden: true },
    ...boxes.map((box, at) => h('label', { class: 'size' }, SLIDERS[at][1], box)), reset);
  byId('stage').after(panel);

  function apply() {
    const adjusted = value.brightness !== 100 || value.contrast !== 100;
    SLIDERS.forEach(([name], at) => (boxes[at].value = String(value[name])));
    document.documentElement.style.setProperty('--adjusted', adjusted ? `brightness(${value.brightness}%) contrast(${value.contrast}%)` : 'none');
    localStorage.setItem(KEEP, JSON.stringify(value));
    reset.toggleAttribute('disabled', !adjusted);
    changed(adjusted);
  }
  apply();
  return {
    toggle() {
      panel.hidden = !panel.hidden;
      if (!panel.hidden) boxes[0].focus();
      else byId('stage').focus({ preventScroll: true });
    },
  };
}
