/** What the review views share: a large image, big buttons that decide, any other class behind “/”, thumbnails. */
import { get, imageUrl, post } from './api.js';
import { progressBar } from './cards.js';
import { makeClassFilter } from './class_filter.js';
import { h, icon, keycap, nameTag } from './dom.js';
import { note } from './link.js';
import { isOwner, liveClasses, store } from './state.js';
import { makeZoom } from './zoom.js';

const SOON = 700; // ms between two looks at a job
const MOST_THUMBS = 60;
const LONG = 18; // characters of a name that needs a whole row

/** @typedef {{image: string, seal: string}} Shown */

/** A large image that can be zoomed. @param {string} alt @param {(step: number) => void} move */
export function makeLargeImage(alt, move) {
  const element = h('div', { class: 'stage still' });
  const zoom = makeZoom(element, { swiped: move, changed: () => {} });
  let on = '';
  /** @param {Shown} item */
  function show({ image, seal }) {
    if (on === image) return;
    on = image;
    const photo = /** @type {HTMLImageElement} */ (h('img', { class: 'photo', src: imageUrl({ key: image, seal }, 1280), alt, 'data-key': image, draggable: false }));
    element.replaceChildren(photo);
    zoom.attach(photo);
  }
  return { element, show, zoom: zoom.toggle };
}

/**
 * A big button that decides. The text may hold class names of any length.
 * @param {{key: string, text: (Node|string)[], detail?: (Node|string)[], act: () => void, main?: boolean, name: string}} how  `name` says which, for tests
 */
export function verdictButton({ key, text, detail = [], act, main = false, name }) {
  return h('button', { class: `verdict ${main ? 'best' : ''}`, type: 'button', 'data-verdict': name, onclick: act },
    key ? keycap(key) : h('span', { class: 'cap none' }), h('span', { class: 'verdict-text' }, ...text), detail.length > 0 && h('span', { class: 'verdict-detail soft small' }, ...detail));
}

/**
 * Every class, and "other", behind one button; “/” opens it and types into its box.
 * @param {(class_id: number|null) => void} choose
 */
export function makeAnotherClass(choose) {
  const list = h('div', { class: 'classes', role: 'group', 'aria-label': 'Another class' });
  /** @param {number|null} id */
  const pick = (id) => {
    toggle(false);
    choose(id);
  };
  const filter = makeClassFilter({ list, choose: pick, leave: () => toggle(false), always: true });
  const panel = h('div', { class: 'another', hidden: true }, filter.element, list);
  const button = h('button', { class: 'verdict', type: 'button', 'aria-expanded': 'false', 'data-verdict': 'another', onclick: () => toggle(panel.hidden) },
    keycap('/'), h('span', { class: 'verdict-text' }, 'Another class'));
  const element = h('div', { class: 'another-class' }, button, panel);

  /** @param {boolean} open */
  function toggle(open) {
    panel.hidden = !open;
    button.setAttribute('aria-expanded', String(open));
    if (!open) return;
    filter.focus();
    button.scrollIntoView({ block: 'start' }); // the list is long: it gets the height that there is
  }

  store.watch((state) => [JSON.stringify(liveClasses(state))], (state) => {
    const choices = liveClasses(state).map((klass) => h('button', { class: 'class', type: 'button', 'data-class': klass.id, onclick: () => pick(klass.id) }, nameTag(klass.name)));
    const other = h('button', { class: 'class', type: 'button', 'data-class': 'other', onclick: () => pick(null) }, h('span', { class: 'name' }, 'Other: none of the classes'));
    list.classList.toggle('long', liveClasses(state).some((klass) => klass.name.length > LONG));
    list.replaceChildren(...choices, other);
    filter.refresh();
  });
  return { element, open: () => toggle(true), close: () => toggle(false), isOpen: () => !panel.hidden };
}

/** Small images in a row; one can be picked where there is `go`. @param {Shown[]} images @param {{label: string, at?: number, go?: (at: number) => void}} how */
export function thumbStrip(images, { label, at = -1, go }) {
  const start = Math.max(0, Math.min(at - MOST_THUMBS / 2, images.length - MOST_THUMBS));
  const thumbs = images.slice(start, start + MOST_THUMBS).map((one, place) => {
    const index = start + place;
    const picture = h('img', { src: imageUrl({ key: one.image, seal: one.seal }, 160), alt: go ? '' : `${label}, ${index + 1}`, loading: 'lazy' });
    const held = go ? h('button', { type: 'button', onclick: () => go(index), 'aria-label': `${label}, ${index + 1}` }, picture) : picture;
    return h('li', { class: 'thumb', ...(index === at ? { 'data-now': '' } : {}) }, held);
  });
  return h('ol', { class: 'strip', 'aria-label': label }, ...thumbs);
}

/** A message in place of images, without a heading: the view has one. @param {string} symbol @param {string} title @param {...(string|Node|null|false)} rest */
export function viewMessage(symbol, title, ...rest) {
  const parts = rest.filter(Boolean).map((part) => (typeof part === 'string' ? h('p', { class: 'soft' }, part) : part));
  return h('div', { class: 'message' }, h('div', { class: 'emblem' }, icon(symbol)), h('h2', {}, title), ...parts);
}

/** How far a job is. @param {string} title @param {import('./types.js').Job} job */
export function jobMessage(title, job) {
  const bar = progressBar(Math.round(100 * (job.share ?? 0)), 100, title);
  bar.classList.add('wide');
  return viewMessage('spark', title, bar, h('p', { class: 'soft small' }, job.what || 'starting'));
}

/** @param {() => void} undo @param {string} title */
export function undoButton(undo, title) {
  return h('button', { class: 'plain', type: 'button', 'data-act': 'undo', title: `${title} (u)`, onclick: undo }, icon('undo'), 'Undo', keycap('u'));
}

/**
 * What the server has found in the background. `open` shows what was found last, asks for a fresh look where something
 * has changed since and the owner looks, and follows the job while the view is open.
 * @param {string} path @param {(reply: any) => boolean} ready whether a look makes sense @param {(reply: any, trouble: any) => void} draw
 */
export function makeFinder(path, ready, draw) {
  let open = false;
  /** @type {ReturnType<typeof setTimeout>|undefined} */ let timer;

  /** @param {boolean} start */
  async function look(start) {
    clearTimeout(timer);
    let reply = null;
    try {
      reply = await get(path);
      if (start && isOwner(store.get()) && !reply.fresh && ready(reply) && reply.job.state !== 'running') reply = { ...reply, job: (await post(`${path}/start`, {})).job };
    } catch (trouble) {
      note(trouble);
      if (open) draw(reply, trouble);
      return;
    }
    if (!open) return;
    draw(reply, null);
    if (reply.job.state === 'running') timer = setTimeout(() => void look(false), SOON);
  }

  return {
    open: () => {
      open = true;
      return look(true);
    },
    close: () => {
      open = false;
      clearTimeout(timer);
    },
  };
}
