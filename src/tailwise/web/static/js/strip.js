/** The strip of small images under the large one: where one was, where one goes; a click leads there. */
import { imageUrl } from './api.js';
import { byId, h } from './dom.js';
import { answerText, liveClasses, shortName, store } from './state.js';
import { movedTo, standing } from './timeline.js';

const AROUND = 4;
const SHORT = 10; // characters of a caption

/** @typedef {import('./types.js').Picture} Picture */

export function makeStrip() {
  const strip = byId('strip');
  /** @type {Map<string, HTMLElement>} */ let thumbs = new Map();
  if (!matchMedia('(min-width: 47.5em) and (min-height: 40em)').matches) return; // it does not fit on a phone

  store.watch((state) => [state.line, state.server?.classes.length], (state) => {
    const { items, cursor } = state.line;
    const first = Math.max(0, Math.min(cursor - AROUND, items.length - 2 * AROUND - 1));
    const near = items.slice(first, first + 2 * AROUND + 1);
    const name = (/** @type {Picture} */ { key, seal }) => `${key} ${seal}`;
    const next = new Map(near.map((item) => [name(item), thumbs.get(name(item)) ?? thumb(item)]));
    near.forEach((item, at) => {
      const place = /** @type {HTMLElement} */ (next.get(name(item)));
      const answer = standing(item);
      const said = answer ? answerText(state, answer) : '';
      const short = answer?.kind === 'label' ? shortName(liveClasses(state), answer.class_id, SHORT) : said;
      place.toggleAttribute('data-now', first + at === cursor);
      place.setAttribute('data-state', answer ? (answer.saved ? 'saved' : 'waiting') : 'open');
      const button = /** @type {HTMLElement} */ (place.firstElementChild);
      button.setAttribute('aria-label', `Image ${first + at + 1}${said ? `, ${said}` : ''}`);
      button.toggleAttribute('aria-current', first + at === cursor);
      const caption = /** @type {HTMLElement} */ (place.lastElementChild);
      caption.textContent = short;
      caption.title = said;
    });
    thumbs = next;
    strip.replaceChildren(...next.values());
  });
}

/** @param {Picture} item */
function thumb(item) {
  const go = () => store.set({ line: movedTo(store.get().line, item.key) });
  return h('li', { class: 'thumb' },
    h('button', { type: 'button', tabIndex: -1, onclick: go }, h('img', { src: imageUrl(item, 160), alt: '', loading: 'lazy', draggable: false })),
    h('span', { class: 'said', dir: 'auto' }));
}
