/** The parts around the map: its tools, the legend, the table of counts, and what is shown before it is drawn. */
import { progressBar } from './cards.js';
import { counted, h, icon, keycap, nameTag } from './dom.js';
import { isOwner, OWNER_ONLY, store } from './state.js';

/** @typedef {{points: number, missing: number, method: string|null, backbone: string|null, umap: boolean, job: import('./types.js').Job}} Status */

const BETTER = 'PCA; install tailwise[map] for UMAP, which separates classes better';

/** @param {string} name @param {string} text @param {string} cap @param {string} title @param {() => void} act @param {boolean} [short] */
export function tool(name, text, cap, title, act, short = false) {
  return h('button', { class: `tool map-tool${short ? ' short' : ''}`, type: 'button', 'data-act': name, title, ...(short ? { 'aria-label': text } : {}), onclick: act },
    name === 'images' ? icon('images') : sign(name), short ? '' : h('span', {}, text), !short && cap ? keycap(cap) : '');
}

/** Icons that only the map has. @param {string} name */
function sign(name) {
  const paths = /** @type {Record<string, string>} */ ({
    lasso: 'M12 4c5 0 9 2.500 9 6s-4 6-9 6-9-2.500-9-6 4-6 9-6zM7 15.500c-1.500 1-1.500 3 0 3.500s2 1.500 1 2.500', plus: 'M12 5v14M5 12h14', minus: 'M5 12h14',
    fit: 'M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5',
  });
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  path.setAttribute('d', paths[name]);
  svg.append(path);
  return svg;
}

/** @param {import('./map_colours.js').Entry} entry @param {boolean} shown @param {() => void} act */
export function legendRow({ name, colour, count }, shown, act) {
  const dot = h('i', { class: 'map-dot' });
  dot.style.background = colour;
  return h('li', {}, h('button', { type: 'button', 'aria-pressed': String(shown), 'data-name': name, onclick: act }, dot, nameTag(name), h('span', { class: 'count' }, count.toLocaleString('en'))));
}

/** @param {string} what @param {import('./map_colours.js').Entry[]} entries @param {number} total */
export function table(what, entries, total) {
  const row = (/** @type {string} */ name, /** @type {number} */ count) => h('tr', {}, h('th', { scope: 'row' }, name), h('td', {}, count.toLocaleString('en')));
  return h('table', {}, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, what), h('th', { scope: 'col' }, 'Images'))),
    h('tbody', {}, ...entries.map((one) => row(one.name, one.count)), row('All', total)));
}

/** @param {{method: string, backbone: string}} header @param {number} count */
export function about({ method, backbone }, count) {
  return `${method === 'umap' ? 'UMAP' : 'PCA'} of ${counted(count, 'image')}, features by ${backbone}. Close points are alike; the distance between far groups means little.`;
}

/** The line above the map, or in its place. @param {Status} status @param {boolean} ready @param {string} fault @param {(how?: object) => Promise<void>} draw */
export function stateOf(status, ready, fault, draw) {
  const running = status.job.state === 'running';
  const owner = isOwner(store.get());
  const share = Math.round(100 * (status.job.share ?? 0));
  const bar = running ? h('div', { class: 'job' }, progressBar(share, 100, 'Drawing the map'), h('p', { class: 'soft small' }, status.job.what || 'Working', h('span', { class: 'end' }, `${share}\u202f%`))) : '';
  const trouble = h('p', { class: 'fault', role: 'alert' }, running ? '' : fault);
  const hint = status.umap ? '' : h('p', { class: 'soft small' }, BETTER);
  if (!ready) {
    return h('div', { class: 'message' }, h('div', { class: 'emblem' }, icon('images')), h('h2', {}, running ? 'Drawing the map' : 'The map is not drawn yet'),
      h('p', { class: 'soft' }, 'Every image becomes a point, and alike images lie close together. It is drawn once, in the background, and kept.'),
      running ? '' : owner ? h('button', { class: 'main', type: 'button', 'data-act': 'draw', onclick: () => void draw() }, 'Draw the map') : h('p', { class: 'soft' }, OWNER_ONLY), bar, trouble, hint);
  }
  const more = [];
  if (owner && !running && status.missing) more.push(h('button', { class: 'plain', type: 'button', 'data-act': 'place', onclick: () => void draw({ method: status.method }) }, `Add ${counted(status.missing, 'new image')}`));
  if (owner && !running && status.method === 'pca' && status.umap) more.push(h('button', { class: 'plain', type: 'button', 'data-act': 'umap', title: 'UMAP separates classes better; it takes a minute or two', onclick: () => void draw({ method: 'umap' }) }, 'Draw with UMAP'));
  return h('div', { class: 'map-row' }, ...more, bar, trouble, status.method === 'pca' ? hint : '');
}
