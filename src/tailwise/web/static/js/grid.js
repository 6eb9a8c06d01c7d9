/** Grid mode: many images of one proposed class; exceptions are clicked out, the rest is accepted with one key. */
import { imageUrl, post } from './api.js';
import { counted, byId, h, icon, keycap, nameTag, percent } from './dom.js';
import { note } from './link.js';
import { className, isBlind, liveClasses, store } from './state.js';
import { makeTiles } from './tiles.js';
import { withNext } from './timeline.js';

const COUNT = 48;

/** @typedef {import('./types.js').Picture} Picture */

/**
 * @param {object} acts
 * @param {(said: import('./answering.js').Said[]) => Promise<void>} acts.sayAll
 * @param {(images: string[]) => void} acts.release
 * @param {() => Promise<void>} acts.quiet   when nothing waits in the outbox any more
 * @param {{moment: () => number, held: (since?: number) => Set<string>, claim: () => void}} acts.tabs
 */
export function makeGrid({ sayAll, release, quiet, tabs }) {
  const place = byId('grid');
  /** @type {number|null} */ let klass = null;
  /** @type {Picture[]} */ let pictures = [];
  /** @type {Set<string>} */ const left = new Set(); // images taken out: they come one by one
  let turn = 0; // the newest request wins
  const chips = h('div', { class: 'chips', role: 'group', 'aria-label': 'Proposed class' });
  const title = h('h1', {});
  const empty = h('div', { class: 'grid-empty', hidden: true });
  const accept = h('button', { class: 'main', type: 'button', 'data-act': 'accept', onclick: acceptAll }, icon('check'), h('span', {}), keycap('⏎'));
  const hint = h('p', { class: 'soft small' }, 'Click the images that are something else. They are left for later, or get another class with its key.');
  const tiles = makeTiles({ changed: count });
  place.append(h('header', { class: 'view-head' }, title, chips), empty, tiles.element, h('footer', { class: 'grid-foot' }, hint, accept));

  /** @param {number} id @returns {Promise<Picture[]>} */
  async function fetchClass(id) {
    const { annotator } = store.get();
    const asked = tabs.moment();
    const reply = await post('/api/grid', { annotator, class_id: id, count: COUNT });
    const done = new Set(store.get().line.items.filter((item) => item.answers.length).map((item) => item.key));
    const sure = (/** @type {Picture} */ one) => one.prelabel?.confidence ?? 0;
    const elsewhere = tabs.held(asked);
    const open = (reply.images ?? []).filter((/** @type {Picture} */ { key }) => !done.has(key) && !left.has(key) && !elsewhere.has(key));
    return open.sort((/** @type {Picture} */ a, /** @type {Picture} */ b) => sure(b) - sure(a));
  }

  /** Show a class, or the first one from it on that has images. @param {number} from @param {{only?: boolean}} [how] */
  async function load(from, { only = false } = {}) {
    const mine = ++turn;
    const state = store.get();
    const ids = isBlind(state) ? [] : candidates(state, from); // a proposed class is what the model thinks
    place.setAttribute('aria-busy', 'true');
    try {
      for (const id of only ? ids.slice(0, 1) : ids) {
        const found = await fetchClass(id);
        if (mine !== turn) return;
        klass = id;
        pictures = found;
        if (found.length) break;
      }
    } catch (trouble) {
      note(trouble);
    } finally {
      if (mine === turn) place.removeAttribute('aria-busy');
    }
    tabs.claim();
    draw();
  }

  function draw() {
    const state = store.get();
    place.dataset.ready = String(pictures.length);
    title.replaceChildren(...(klass && pictures.length ? ['Are these all ', nameTag(className(state, klass)), '?'] : ['Grid']));
    chips.replaceChildren(...liveClasses(state).map(chip));
    tiles.show(pictures.map((one) => ({ key: one.key, url: imageUrl(one, 160), sharp: imageUrl(one, 512), note: one.prelabel ? percent(one.prelabel.confidence) : '' })));
    empty.hidden = pictures.length > 0;
    empty.replaceChildren(...(pictures.length ? [] : [emptyText(state)]));
    count();
  }

  /** @param {import('./types.js').Klass} one */
  function chip(one) {
    return h('button', { type: 'button', class: 'chip', 'aria-pressed': one.id === klass, 'data-class': one.id,
      onclick: () => { leave(); void load(one.id, { only: true }); } }, nameTag(one.name));
  }

  function count() {
    const out = tiles.marks();
    const taken = pictures.length - [...out.values()].filter((mark) => mark === null).length;
    const name = klass ? className(store.get(), klass) : '';
    const own = [...out.values()].filter((mark) => mark !== null).length;
    const text = h('span', { class: 'accept-text' }, own ? `Save ${counted(taken, 'answer')}` : `Accept ${taken} as `, own ? '' : nameTag(name));
    accept.children[1].replaceWith(text);
    accept.toggleAttribute('disabled', taken === 0);
  }

  async function acceptAll() {
    const marks = tiles.marks();
    if (!pictures.length || klass === null) return;
    const mine = ++turn;
    const proposed = klass;
    const said = pictures.flatMap(({ key, seal }) => {
      const mark = marks.has(key) ? marks.get(key) : { kind: 'label', class_id: proposed };
      return mark ? [{ image: key, seal, ...mark }] : [];
    });
    const out = pictures.filter(({ key }) => marks.get(key) === null);
    for (const { key } of out) left.add(key);
    store.set({ line: withNext(store.get().line, out) });
    pictures = [];
    draw();
    await sayAll(/** @type {any} */ (said));
    await quiet(); // until then the server would offer the same images again
    if (mine === turn) await load(proposed);
  }

  /** Give the images back that nobody answered. */
  function leave() {
    turn += 1;
    release(pictures.map((one) => one.key).filter((key) => !left.has(key)));
    pictures = [];
  }

  return {
    open: () => void load(klass ?? 0),
    /** Look again, if there was nothing. */
    retry: () => pictures.length || void load(klass ?? 0),
    close: leave,
    acceptAll: () => void acceptAll(),
    images: () => pictures.map((one) => one.key),
    /** Show or hide what the model thinks. */
    reopen: () => {
      leave();
      void load(klass ?? 0);
    },
    move: tiles.move,
    toggle: tiles.toggle,
    /** Give the tile in focus a class, or other. @param {number|null} id */
    assign: (id) => tiles.assign(id === null ? { kind: 'other', class_id: null } : { kind: 'label', class_id: id }, id === null ? 'other' : className(store.get(), id)),
    atPlace: (/** @type {number} */ at) => liveClasses(store.get())[at]?.id,
  };
}

/** Classes in the order in which they are tried: from the given one on, round about. @param {import('./state.js').PageState} state @param {number} from */
function candidates(state, from) {
  const ids = liveClasses(state).map((one) => one.id);
  const at = Math.max(0, ids.indexOf(from));
  return [...ids.slice(at), ...ids.slice(0, at)];
}

/** @param {import('./state.js').PageState} state */
function emptyText(state) {
  if (state.waiting) return h('div', { class: 'message' }, h('p', { class: 'soft' }, 'Saving …'));
  const text = emptyReason(state);
  return h('div', { class: 'message' }, h('div', { class: 'emblem' }, icon('images')), h('h2', {}, 'Nothing to accept here'), h('p', { class: 'soft' }, text));
}

/** @param {import('./state.js').PageState} state */
function emptyReason(state) {
  if (state.server?.settings?.blind) return 'This campaign is labelled blind. A grid would show what the model thinks, so images come one by one.';
  if (isBlind(state)) return 'You are labelling blind. Press b to see what the model proposes.';
  if (!state.server?.round) return 'There is no round yet.';
  return 'No image of this round is proposed for this class any more. In the first round there is no model yet, so nothing is proposed at all.';
}
