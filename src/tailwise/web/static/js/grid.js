/** Grid mode: many images of one proposed class; exceptions are clicked out, the rest is accepted with one key. */
import { imageUrl, post } from './api.js';
import { makeClassFilter } from './class_filter.js';
import { counted, byId, h, icon, keycap, nameTag, percent } from './dom.js';
import { makeEnlarge } from './enlarge.js';
import { placeOf } from './keys.js';
import { note } from './link.js';
import { className, isBlind, liveClasses, shortName, store } from './state.js';
import { makeTiles } from './tiles.js';
import { open as openItems, withNext } from './timeline.js';

const COUNT = 48;
const SHORT = 28; // characters of a name on a button
const SURE = 0.6; // less probable proposals are not selected at first
const SIZE = 'tailwise.tile';

/** @typedef {import('./types.js').Picture} Picture */

/** @param {any} session as startSession makes it */
export function makeView({ answering, lease, quiet, tabs }) {
  const place = byId('grid');
  /** @type {number|null} */ let klass = null;
  /** @type {Picture[]} */ let pictures = [];
  /** @type {Map<number, number>} */ let counts = new Map(); // images by proposed class, fullest first
  /** @type {Set<string>} */ const left = new Set(); // images taken out: they come one by one
  let turn = 0; // the newest request wins
  const chips = h('div', { class: 'chips', role: 'group', 'aria-label': 'Proposed class' });
  const title = h('h1', {});
  const empty = h('div', { class: 'grid-empty', hidden: true });
  const accept = h('button', { class: 'main', type: 'button', 'data-act': 'accept', onclick: acceptAll }, icon('check'), h('span', {}), keycap('⏎'));
  const hint = h('p', { class: 'soft small' });
  const tiles = makeTiles({ changed: count, enlarge: (at) => enlarge.open(at) });
  const enlarge = makeEnlarge({ picture: (at) => pictures[at], says, assign, toggle: tiles.toggle, closed: tiles.focus });
  const filter = makeClassFilter({ list: chips, choose: (id) => void change(id), leave: tiles.focus });
  const tools = h('div', { class: 'grid-tools', role: 'toolbar', 'aria-label': 'Tiles' }, sizeBox(tiles.element),
    h('button', { class: 'plain', type: 'button', 'data-act': 'invert', title: 'What is selected is left out, and the other way round (v)', onclick: tiles.invert }, 'Invert', keycap('v')),
    h('button', { class: 'plain', type: 'button', 'data-act': 'enlarge', title: 'The image in focus, with all classes (z, or the right mouse button)', onclick: () => enlarge.open(tiles.at()) }, icon('zoom'), 'Enlarge', keycap('z')));
  place.append(h('header', { class: 'view-head' }, title, tools, filter.element, chips), empty, tiles.element, h('footer', { class: 'grid-foot' }, hint, accept));

  /** @param {number} id @returns {Promise<Picture[]>} */
  async function fetchClass(id) {
    const { annotator } = store.get();
    const asked = tabs.moment();
    const reply = await post('/api/grid', { annotator, class_id: id, count: COUNT });
    counts = new Map((reply.counts ?? []).map((/** @type {{class_id: number, images: number}} */ one) => [one.class_id, one.images]));
    const done = new Set(store.get().line.items.filter((item) => item.answers.length).map((item) => item.key));
    const elsewhere = tabs.held(asked);
    const open = (reply.images ?? []).filter((/** @type {Picture} */ { key }) => !done.has(key) && !left.has(key) && !elsewhere.has(key));
    return open.sort((/** @type {Picture} */ a, /** @type {Picture} */ b) => sureness(b) - sureness(a));
  }

  /** Show a class, or the fullest one that has images. @param {number} from @param {{only?: boolean}} [how] */
  async function load(from, { only = false } = {}) {
    const mine = ++turn;
    const state = store.get();
    const ids = liveClasses(state).map((one) => one.id);
    /** @type {Set<number>} */ const tried = new Set();
    place.setAttribute('aria-busy', 'true');
    try {
      // A proposed class is what the model thinks. The first reply says which classes have images.
      for (let id = ids.includes(from) ? from : ids[0]; id && !isBlind(state); ) {
        const found = await fetchClass(id);
        if (mine !== turn) return;
        klass = id;
        pictures = found;
        tried.add(id);
        const fullest = [...counts.keys()].filter((one) => ids.includes(one))[0];
        const first = !from && tried.size === 1 && fullest && fullest !== id; // nobody has chosen a class yet
        if (only || (found.length && !first)) break;
        if (first) release(found.map((one) => one.key));
        id = [...counts.keys()].find((one) => ids.includes(one) && !tried.has(one)) ?? 0;
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
    const order = [...counts.keys()];
    const proposed = liveClasses(state).filter((one) => counts.has(one.id) || one.id === klass);
    chips.replaceChildren(...(isBlind(state) ? [] : proposed.sort((a, b) => rank(order, a.id) - rank(order, b.id)).map(chip)));
    chips.hidden = !chips.children.length || !counts.size;
    tiles.show(pictures.map((one) => ({ key: one.key, url: imageUrl(one, 160), sharp: imageUrl(one, 512), note: one.prelabel ? percent(one.prelabel.confidence) : '', unsure: sureness(one) < SURE })));
    empty.hidden = tools.hidden = pictures.length > 0;
    tools.hidden = !pictures.length;
    empty.replaceChildren(...(pictures.length ? [] : [emptyText(state)]));
    filter.refresh();
    count();
  }

  /** @param {import('./types.js').Klass} one */
  function chip(one) {
    const many = counts.get(one.id) ?? 0;
    return h('button', { type: 'button', class: 'chip', 'aria-pressed': one.id === klass, 'data-class': one.id, onclick: () => void change(one.id) },
      nameTag(one.name, shortName(liveClasses(store.get()), one.id, SHORT)), h('span', { class: 'chip-count' }, many));
  }

  /** Another class; what was chosen for the tiles of this one stays. @param {number} id */
  async function change(id) {
    leave();
    filter.clear();
    await load(id, { only: true });
    tiles.focus(); // so that Enter accepts
  }

  function count() {
    const choices = [...tiles.choices().values()];
    const own = choices.filter(({ state }) => state === 'own').length;
    const taken = own + choices.filter(({ state }) => state === 'in').length;
    const unsure = choices.filter(({ state }) => state === 'unsure').length;
    const name = klass ? className(store.get(), klass) : '';
    const text = taken ? (own ? [`Save ${counted(taken, 'answer')}`] : [`Accept ${taken} as `, nameTag(name)]) : ['Leave all for later'];
    accept.children[1].replaceWith(h('span', { class: 'accept-text' }, ...text));
    accept.querySelector('use')?.setAttribute('href', taken ? '#i-check' : '#i-skip');
    hint.textContent = `${unsure ? `${counted(unsure, 'image')} below ${percent(SURE)} ${unsure === 1 ? 'is' : 'are'} not selected: click to select. ` : ''}Click an image of another class to leave it out, with ⇧ a range. What is left out comes later, one by one.`;
  }

  async function acceptAll() {
    const choices = tiles.choices();
    if (!pictures.length || klass === null) return;
    const mine = ++turn;
    const proposed = klass;
    const said = pictures.flatMap(({ key, seal }) => {
      const { state, mark } = choices.get(key) ?? { state: 'out' };
      if (state === 'own' && mark) return [{ image: key, seal, ...mark }];
      return state === 'in' ? [{ image: key, seal, kind: 'label', class_id: proposed }] : [];
    });
    const answered = new Set(said.map((one) => one.image));
    const out = pictures.filter(({ key }) => !answered.has(key));
    for (const { key } of out) left.add(key);
    store.set({ line: withNext(store.get().line, out) });
    tiles.forget(pictures.map((one) => one.key));
    pictures = [];
    draw();
    await answering.sayAll(said);
    await quiet(); // until then the server would offer the same images again
    if (mine === turn) await load(proposed);
  }

  /** @param {string[]} images */
  function release(images) {
    const queued = new Set(openItems(store.get().line).map((item) => item.key)); // these are held for the label view
    void lease.release(images.filter((image) => !queued.has(image)));
  }

  /** Give the images back that nobody answered. */
  function leave() {
    turn += 1;
    release(pictures.map((one) => one.key).filter((key) => !left.has(key)));
    pictures = [];
  }

  /** Give a tile a class, or other. @param {number} at @param {number|null} id */
  function assign(at, id) {
    tiles.assign(id === null ? { kind: 'other', class_id: null } : { kind: 'label', class_id: id }, id === null ? 'other' : className(store.get(), id), at);
  }

  /** @param {number} at */
  function says(at) {
    const { state = 'in', text = '' } = tiles.choices().get(pictures[at]?.key) ?? {};
    const sure = pictures[at]?.prelabel ? `, ${percent(sureness(pictures[at]))}` : '';
    const proposal = `Proposed: ${className(store.get(), klass)}${sure}.`;
    return `${proposal} ${state === 'own' ? `Saved as ${text}.` : state === 'in' ? 'Selected.' : 'Left for later.'}`;
  }

  const reload = () => void load(klass ?? 0);
  return {
    open: reload,
    /** Look again, if there was nothing. */
    retry: () => pictures.length || reload(),
    close: leave,
    images: () => pictures.map((one) => one.key),
    /** Show or hide what the model thinks. */
    reopen() {
      leave();
      reload();
    },
    keys: {
      digit: (/** @type {KeyboardEvent} */ event) => {
        const found = liveClasses(store.get())[Number(placeOf(event))];
        if (found) assign(tiles.at(), found.id);
      },
      left: () => tiles.move('left'), right: () => tiles.move('right'), up: () => tiles.move('up'), down: () => tiles.move('down'),
      except: () => tiles.toggle(), space: () => tiles.toggle(), other: () => assign(tiles.at(), null), enter: () => void acceptAll(), adjust: tiles.invert,
      zoom: () => enlarge.open(tiles.at()),
      filter: () => (tiles.isFocused() ? enlarge.open(tiles.at(), { find: true }) : filter.focus()),
      undo: () => void answering.undo().then(quiet).then(reload),
    },
  };
}

/** @param {Picture} picture */
const sureness = (picture) => picture.prelabel?.confidence ?? 0;

/** @param {number[]} order @param {number} id */
const rank = (order, id) => (order.includes(id) ? order.indexOf(id) : order.length);

/** How large the tiles are, kept in this browser. @param {HTMLElement} tiles */
function sizeBox(tiles) {
  const box = /** @type {HTMLInputElement} */ (h('input', { type: 'range', min: '5', max: '20', step: '0.5', 'aria-label': 'Size of the tiles', oninput: apply }));
  box.value = localStorage.getItem(SIZE) ?? '9';
  function apply() {
    tiles.style.setProperty('--tile', `${box.value}rem`);
    localStorage.setItem(SIZE, box.value);
  }
  apply();
  return h('label', { class: 'size' }, 'Size', box);
}

/** @param {import('./state.js').PageState} state */
function emptyText(state) {
  if (state.waiting) return h('div', { class: 'message' }, h('p', { class: 'soft' }, 'Saving …'));
  const next = h('p', {}, h('a', { href: '#label' }, state.server?.round ? 'Label images one by one' : 'Choose the first batch'));
  return h('div', { class: 'message' }, h('div', { class: 'emblem' }, icon('images')), h('h2', {}, 'Nothing to accept here'), h('p', { class: 'soft' }, emptyReason(state)), next);
}

/** @param {import('./state.js').PageState} state */
function emptyReason(state) {
  if (state.server?.settings?.blind) return 'This campaign is labelled blind. A grid would show what the model thinks, so images come one by one.';
  if (isBlind(state)) return 'Suggestions are hidden. Press b to see what the model proposes.';
  if (!state.server?.round) return 'There is no round yet.';
  return state.server.round.id === 1 ? 'In the first round there is no model yet, so nothing is proposed.' : 'No image of this round is proposed for this class any more.';
}
