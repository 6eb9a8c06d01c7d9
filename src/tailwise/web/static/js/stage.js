/** The image on show, with what the model thinks of it and what was answered. */
import { imageUrl } from './api.js';
import { byId, h, icon, keycap, nameTag, percent } from './dom.js';
import { isDecoded, picture, preload } from './preload.js';
import { answerText, className, isBlind, liveClasses, store } from './state.js';
import { shown, standing } from './timeline.js';
import { makeZoom } from './zoom.js';

const LOADING = 'Loading …';
const MOST = 8; // times: small images are enlarged no more than that

/** @param {{move: (step: number) => void, accept: () => void, zoomChanged: (zoomed: boolean) => void}} acts */
export function makeStage({ move, accept, zoomChanged }) {
  const stage = byId('stage');
  const notes = h('div', { class: 'notes' });
  const tally = h('p', { class: 'tally', 'aria-hidden': 'true' });
  const loading = h('p', { class: 'loading', hidden: true }, LOADING);
  const small = /** @type {HTMLImageElement} */ (h('img', { class: 'preview', alt: '', hidden: true, draggable: false }));
  const zoom = makeZoom(stage, { swiped: move, changed: zoomChanged });
  /** @type {HTMLImageElement|null} */ let image = null;
  stage.append(small, loading, tally, notes);

  /** @param {HTMLImageElement} of */
  function settle(of) {
    if (of !== image) return;
    const seen = isDecoded(of);
    loading.hidden = seen;
    loading.textContent = LOADING;
    small.hidden = seen;
    if (!seen) return;
    enlarge(of, of.naturalWidth, of.naturalHeight);
    of.dataset.painted = 'yes';
    store.set({ painted: of.dataset.key ?? '' });
  }

  store.watch((state) => [shown(state.line)?.key, shown(state.line)?.seal], (state) => {
    const item = shown(state.line);
    image?.remove();
    image = item ? picture(item) : null;
    store.set({ painted: '' });
    if (item && image) {
      const now = image;
      now.alt = 'The image to label';
      now.className = 'photo';
      delete now.dataset.painted;
      if (!isDecoded(now)) preview(item);
      stage.prepend(now);
      settle(now);
      now.addEventListener('decoded', () => settle(now), { once: true });
      now.onerror = () => now === image && (loading.textContent = 'This image does not load. It is tried again; or skip it.');
    }
    zoom.attach(image);
  });

  /** The small copy, which the browser has from the strip, until the large one is there. @param {import('./types.js').Picture} item */
  function preview(item) {
    small.src = imageUrl(item, 160);
    enlarge(small, item.width || 0, item.height || 0);
  }

  store.watch((state) => [state.line], ({ line }) => preload(line.items, line.cursor));
  // Not at every look at the server: a button that is replaced under a finger would not be pressed.
  store.watch((state) => [shown(state.line), isBlind(state), className(state, shown(state.line)?.prelabel?.class_id)], (state) => {
    notes.replaceChildren(...answerNote(state), ...prelabelNote(state, accept));
  });
  store.watch((state) => [state.server?.round?.answered, state.server?.round?.remaining], ({ server }) => {
    const { answered = 0, remaining = 0 } = server?.round ?? {};
    tally.textContent = `${answered}\u202f/\u202f${answered + remaining}`;
    tally.style.setProperty('--share', String(answered / Math.max(1, answered + remaining)));
  });
  return zoom;
}

/** Fill the stage, but enlarge a small image by no more than MOST. @param {HTMLImageElement} image @param {number} width @param {number} height its own pixels, 0 where unknown */
function enlarge(image, width, height) {
  image.style.maxWidth = width ? `${MOST * width}px` : '';
  image.style.maxHeight = height ? `${MOST * height}px` : '';
}

/** @param {import('./state.js').PageState} state */
function answerNote(state) {
  const answer = standing(shown(state.line) ?? undefined);
  if (!answer) return [];
  return [h('p', { class: 'note answered' }, icon('check'), nameTag(answerText(state, answer)))];
}

/** @param {import('./state.js').PageState} state @param {() => void} accept */
function prelabelNote(state, accept) {
  const item = shown(state.line);
  const guess = item?.prelabel;
  if (!guess || isBlind(state) || standing(item) || !liveClasses(state).some((klass) => klass.id === guess.class_id)) return [];
  const name = className(state, guess.class_id);
  return [
    h('button', { class: 'note guess', type: 'button', onclick: accept },
      icon('spark'), h('span', { class: 'unseen' }, 'Accept what the model suggests: '), nameTag(name), h('span', { class: 'share' }, percent(guess.confidence)), keycap('⏎')),
  ];
}
