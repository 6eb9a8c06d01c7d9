/** The filter bar of the gallery: what is shown and in which order, as a request to the server. */
import { counted, h, icon } from './dom.js';
import { isBlind, liveClasses, shortName, store } from './state.js';

const STATES = { '': 'Any state', unlabelled: 'Unlabelled', labelled: 'Labelled', other: 'Other', skipped: 'Skipped', conflict: 'Conflict', flagged: 'Flagged' };
const SURE = { '': 'Any confidence', low: 'Unsure: below 60\u202f%', middle: '60 to 90\u202f%', high: 'Sure: above 90\u202f%' };
/** @type {Record<string, {least?: number, most?: number}>} */
const LIMITS = { low: { most: 0.6 }, middle: { least: 0.6, most: 0.9 }, high: { least: 0.9 } };
const FOUND = { '': 'Labelled anywhere', hunt: 'Found by hunting', gallery: 'Labelled in the gallery', review: 'Labelled in review', duplicates: 'Labelled as duplicates', map: 'Found on the map' };
const COPIES = { hide: 'Without copies', show: 'With copies', only: 'Only copies' };
const SORTS = { path: 'By file name', time: 'Latest answer first', confidence: 'Most confident first', uncertainty: 'Hardest first' };
const OF_MODEL = ['guess', 'sure'];
const SHORT = 30; // characters of a class name in a list

/** @param {() => void} changed */
export function makeGalleryFilter(changed) {
  /** @type {Record<string, string>} */ let chosen = { copies: 'hide', sort: 'path' };
  /** @type {string[]|null} */ let images = null; // a selection that came from elsewhere
  /** @type {string[]} */ let like = [];
  let text = '';
  let reverse = false;
  const bar = h('div', { class: 'picks' });
  const chips = h('div', { class: 'picked' });
  const order = h('div', { class: 'picks' });
  const element = h('div', { class: 'gallery-filter', role: 'group', 'aria-label': 'Filter and order' }, bar, chips);

  /** @param {string} name @param {string} label @param {Record<string, string>|[string, string][]} options */
  function pick(name, label, options) {
    const pairs = Array.isArray(options) ? options : Object.entries(options);
    const value = chosen[name] ?? '';
    const usual = value === '' || (name === 'copies' && value === 'hide') || (name === 'sort' && value === 'path');
    return h('select', { class: usual ? 'pick' : 'pick on', 'aria-label': label, 'data-pick': name, title: label,
      onchange: (/** @type {Event} */ event) => set({ [name]: /** @type {HTMLSelectElement} */ (event.target).value }) },
    ...pairs.map(([id, words]) => h('option', { value: id, selected: id === value }, words)));
  }

  /** @param {Record<string, string>} patch */
  function set(patch) {
    chosen = { ...chosen, ...patch };
    if (patch.sort) [like, text] = [[], ''];
    draw();
    changed();
  }

  function draw() {
    const state = store.get();
    const held = document.activeElement instanceof HTMLElement && (bar.contains(document.activeElement) || order.contains(document.activeElement)) ? document.activeElement.dataset.pick : undefined;
    const live = liveClasses(state);
    const classes = live.map((one) => /** @type {[string, string]} */ ([String(one.id), shortName(live, one.id, SHORT)]));
    const people = (state.server?.annotators ?? []).map((name) => /** @type {[string, string]} */ ([name, name]));
    const rounds = Array.from({ length: state.server?.round?.id ?? 0 }, (_, at) => /** @type {[string, string]} */ ([String(at + 1), `Round ${at + 1}`]));
    const model = !isBlind(state);
    const sorts = Object.entries(SORTS).filter(([id]) => model || !['confidence', 'uncertainty'].includes(id));
    const special = like.length ? [/** @type {[string, string]} */ (['', 'Most alike first'])] : text ? [/** @type {[string, string]} */ (['', 'Best fit first'])] : [];
    bar.replaceChildren(
      pick('state', 'State', STATES), pick('class', 'Labelled as', [['', 'Any class'], ...classes]),
      model ? pick('guess', 'Guess of the model', [['', 'Any guess'], ...classes]) : '',
      model ? pick('sure', 'Confidence of the model', SURE) : '',
      people.length ? pick('annotator', 'Annotator', [['', 'Anyone'], ...people]) : '',
      rounds.length ? pick('round', 'Round', [['', 'Any round'], ...rounds]) : '',
      pick('found', 'Where it was labelled', FOUND), pick('copies', 'Copies of images', COPIES));
    order.replaceChildren(
      pick('sort', 'Order', [...special, ...sorts]),
      h('button', { type: 'button', class: 'pick turn', 'aria-pressed': String(reverse), 'aria-label': 'Reverse the order', title: 'Reverse the order', onclick: turnAround }, '⇅'));
    const tags = [
      images ? chip(`Selection (${images.length.toLocaleString('en')})`, 'selection', () => { images = null; }) : '',
      like.length ? chip(`Like ${counted(like.length, 'image')}`, 'like', () => { like = []; chosen.sort = 'path'; }) : '',
      text ? chip(`“${text}”`, 'text', () => { text = ''; chosen.sort = 'path'; }) : '',
    ];
    const any = images || like.length || text || Object.entries(chosen).some(([name, value]) => value && !(name === 'copies' && value === 'hide') && name !== 'sort');
    chips.replaceChildren(...tags, any ? h('button', { type: 'button', class: 'link', 'data-act': 'clear', onclick: clear }, 'Clear filters') : '');
    chips.hidden = !any;
    if (held) /** @type {HTMLElement|null} */ (document.querySelector(`#gallery [data-pick="${held}"]`))?.focus();
  }

  /** @param {string} words @param {string} name @param {() => void} remove */
  function chip(words, name, remove) {
    return h('button', { type: 'button', class: 'chip', 'data-chip': name, 'aria-label': `Remove the filter: ${words}`, onclick: () => { remove(); draw(); changed(); } }, words, icon('close'));
  }

  function turnAround() {
    reverse = !reverse;
    draw();
    changed();
  }

  function clear() {
    chosen = { copies: 'hide', sort: 'path' };
    [images, like, text] = [null, [], ''];
    draw();
    changed();
  }

  return {
    element,
    order,
    draw,
    clear,
    /** The request. */
    query() {
      const blind = isBlind(store.get());
      const of = (/** @type {string} */ name) => (blind && OF_MODEL.includes(name) ? '' : chosen[name] ?? '');
      const sort = like.length ? 'similarity' : text ? 'text' : blind && ['confidence', 'uncertainty'].includes(chosen.sort) ? 'path' : chosen.sort || 'path';
      return {
        states: of('state') && of('state') !== 'flagged' ? [of('state')] : [], flagged: of('state') === 'flagged',
        classes: of('class') ? [Number(of('class'))] : [], guesses: of('guess') ? [Number(of('guess'))] : [],
        ...(of('sure') ? LIMITS[of('sure')] : {}), annotator: of('annotator') || null, round: of('round') ? Number(of('round')) : null,
        found_by: of('found') || null, duplicates: of('copies') || 'hide', images, sort, reverse, like, text,
      };
    },
    /** @param {string[]} keys */
    only(keys) {
      images = keys;
      draw();
    },
    /** @param {string[]} keys */
    likeThese(keys) {
      [like, text, reverse] = [keys.slice(0, 500), '', false];
      chosen.sort = '';
      draw();
      changed();
    },
    /** @param {string} words */
    fitting(words) {
      [like, text, reverse] = [[], words.trim(), false];
      chosen.sort = text ? '' : 'path';
      draw();
      changed();
    },
  };
}
