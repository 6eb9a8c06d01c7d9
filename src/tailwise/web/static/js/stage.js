/** The image on show, with what the model thinks of it and what was answered. */
import { byId, h, icon, keycap, nameTag, percent } from './dom.js';
import { picture, preload } from './preload.js';
import { answerText, className, isBlind, liveClasses, store } from './state.js';
import { shown, standing } from './timeline.js';
import { makeZoom } from './zoom.js';

const TINY = 160; // px: smaller images are enlarged with sharp pixels instead of a blur

/** @param {{move: (step: number) => void, accept: () => void, zoomChanged: (zoomed: boolean) => void}} acts */
export function makeStage({ move, accept, zoomChanged }) {
  const stage = byId('stage');
  const notes = h('div', { class: 'notes' });
  const tally = h('p', { class: 'tally', 'aria-hidden': 'true' });
  const loading = h('p', { class: 'loading', hidden: true }, 'Loading …');
  const zoom = makeZoom(stage, { swiped: move, changed: zoomChanged });
  /** @type {HTMLImageElement|null} */ let image = null;
  stage.append(loading, tally, notes);

  /** @param {HTMLImageElement} of */
  function settle(of) {
    if (of !== image) return;
    const loaded = of.complete && of.naturalWidth > 0;
    loading.hidden = loaded;
    loading.textContent = 'Loading …';
    of.classList.toggle('tiny', loaded && Math.max(of.naturalWidth, of.naturalHeight) <= TINY);
  }

  store.watch((state) => [shown(state.line)?.key, shown(state.line)?.seal], (state) => {
    const item = shown(state.line);
    image?.remove();
    image = item ? picture(item) : null;
    if (image) {
      const now = image;
      now.alt = 'The image to label';
      now.className = 'photo';
      stage.prepend(now);
      settle(now);
      now.onload = () => settle(now);
      now.onerror = () => now === image && (loading.textContent = 'This image does not load. It is tried again; or skip it.');
    }
    zoom.attach(image);
  });
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
  const says = `The model says ${name}, ${percent(guess.confidence)}. Accept`;
  return [
    h('button', { class: 'note guess', type: 'button', onclick: accept, 'aria-label': says },
      icon('spark'), nameTag(name), h('span', { class: 'share' }, percent(guess.confidence)), keycap('⏎')),
  ];
}
