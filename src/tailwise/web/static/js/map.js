/** The map view: every image as a point, alike ones close together; look at them, hide classes, select some with a lasso. */
import { get, imageUrl, post, Refused } from './api.js';
import { byId, counted, h, icon, nameTag, percent, speak } from './dom.js';
import { note } from './link.js';
import { drawOrder, heldCamera, makeCanvas, radiusOf, toCanvas, toMap, wholeMap, zoomedCamera } from './map_canvas.js';
import { colouring, MODES } from './map_colours.js';
import { listenToGestures } from './map_gestures.js';
import { about, legendRow, stateOf, table, tool } from './map_panels.js';
import { inside, makeIndex, nearest, OTHER, readPoints, UNSURE } from './map_points.js';
import { go } from './nav.js';
import { className, isBlind, store } from './state.js';

/** @typedef {import('./map_colours.js').Mode} Mode */
/** @typedef {import('./map_panels.js').Status} Status */

const SELECTION = 'tailwise.selection'; // image keys for the gallery
const LOOK = 14; // px around the pointer
const POLL = 700; // ms between questions while the map is drawn
const FRESH = 5_000; // ms between two loads of all points while others label
const STEP = 1.35; // of zoom

export function makeView() {
  const place = byId('map');
  const canvas = /** @type {HTMLCanvasElement} */ (h('canvas', { class: 'map-canvas', role: 'img' }));
  const rope = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  rope.setAttribute('class', 'map-lasso');
  rope.setAttribute('aria-hidden', 'true');
  rope.append(line);
  const card = h('div', { class: 'map-card', hidden: true });
  const chosenBar = h('div', { class: 'map-chosen', hidden: true });
  const stage = h('div', { class: 'map-stage', tabIndex: 0, role: 'group', 'aria-label': 'Map. Plus and minus zoom, arrows move, Enter opens the image in the middle, s selects with a lasso.' },
    canvas, rope, card, chosenBar);
  const side = h('div', { class: 'map-side', role: 'group', 'aria-label': 'Colours and counts' });
  const body = h('div', { class: 'map-body' }, stage, side);
  const select = /** @type {HTMLSelectElement} */ (h('select', { class: 'map-mode', id: 'map-mode', onchange: () => { mode = /** @type {Mode} */ (select.value); hiddenNames.clear(); recolour(); } }));
  const lassoButton = tool('lasso', 'Lasso', 's', 'Select images by drawing around them (s), or drag with shift', () => setLasso(!lassoing));
  const allButton = tool('images', 'Select view', '', 'Select every image that is in view', () => selectView());
  const tools = h('div', { class: 'map-tools', role: 'toolbar', 'aria-label': 'Map' },
    h('label', { class: 'map-by', for: 'map-mode' }, h('span', {}, 'Colour by'), select), lassoButton, allButton,
    tool('minus', 'Zoom out', '−', 'Zoom out (−)', () => zoomBy(1 / STEP), true), tool('plus', 'Zoom in', '+', 'Zoom in (+)', () => zoomBy(STEP), true),
    tool('fit', 'Whole map', 'z', 'Show the whole map (z)', whole, true));
  const state = h('div', { class: 'map-state' });
  const painter = makeCanvas(canvas);

  /** @type {import('./map_points.js').Points|null} */ let points = null;
  /** @type {import('./map_points.js').Index|null} */ let index = null;
  /** @type {import('./map_colours.js').Colouring|null} */ let colours = null;
  /** @type {Status|null} */ let status = null;
  /** @type {Set<string>} */ const hiddenNames = new Set();
  let hidden = new Uint8Array(0);
  /** @type {Uint8Array|null} */ let chosen = null;
  /** @type {Uint32Array} */ let order = new Uint32Array(0);
  /** @type {Mode} */ let mode = 'class';
  let camera = { scale: 1, x: 0, y: 0 };
  let size = { width: 0, height: 0 };
  let [lassoing, waiting, watching, fitted, shownAt, loadedAt, fault, etag] = [false, false, false, true, -1, 0, '', ''];

  place.append(h('header', { class: 'view-head map-head' }, h('h1', {}, 'Map'), tools), state, body);

  // -- what the server knows

  async function open() {
    try {
      status = /** @type {Status} */ (await get('/api/map'));
      if (status.points && (!points || performance.now() - loadedAt > FRESH)) await load();
      if (status.job.state === 'failed') fault = status.job.error ?? 'Drawing the map failed.';
    } catch (trouble) {
      note(trouble);
    }
    show();
    if (status?.job.state === 'running') void watchJob();
  }

  /** What others have labelled meanwhile. */
  async function refresh() {
    loadedAt = -FRESH;
    await open();
  }

  /** Until the job has ended, whatever the view is. */
  async function watchJob() {
    if (watching) return;
    watching = true;
    while (status?.job.state === 'running') {
      await new Promise((resolve) => setTimeout(resolve, POLL));
      try {
        status = /** @type {Status} */ (await get('/api/map'));
      } catch (trouble) {
        note(trouble);
      }
      show();
    }
    watching = false;
    if (status?.job.state === 'done') speak('The map is drawn');
    await refresh();
  }

  async function load() {
    const response = await fetch('/api/map/points', { credentials: 'same-origin' });
    if (!response.ok) throw new Refused(response.status, '', `the server answered ${response.status}`);
    loadedAt = performance.now();
    const tag = response.headers.get('ETag') ?? '';
    if (tag && tag === etag) return;
    etag = tag;
    const before = points?.count;
    points = readPoints(await response.arrayBuffer());
    index = makeIndex(points);
    if (before !== points.count) clearChosen();
    recolour();
    if (points.header.guesses === 'waiting') setTimeout(() => store.get().view === 'map' && void refresh(), FRESH);
  }

  /** @param {{method?: string, redo?: boolean}} [how] */
  async function drawMap(how = {}) {
    fault = '';
    try {
      const { job } = await post('/api/map/start', how);
      if (status) status = { ...status, job };
      show();
      void watchJob();
    } catch (trouble) {
      if (trouble instanceof Refused && !trouble.denied) fault = trouble.message;
      else note(trouble);
      show();
    }
  }

  // -- what is shown

  function show() {
    const ready = Boolean(points && status?.points);
    body.hidden = !ready;
    tools.hidden = !ready;
    place.dataset.ready = ready ? String(points?.count) : '';
    place.dataset.job = status?.job.state ?? '';
    state.replaceChildren(...(status ? [stateOf(status, ready, fault, drawMap)] : []));
    if (ready) {
      resize();
      paint();
    }
  }

  function resize() {
    const { clientWidth: width, clientHeight: height } = stage;
    if (!width || (width === size.width && height === size.height)) return;
    const [middleX, middleY] = toMap(camera, size.width / 2, size.height / 2);
    size = { width, height };
    painter.resize(width, height);
    if (fitted) camera = wholeMap(width, height);
    else {
      const [px, py] = toCanvas(camera, middleX, middleY);
      camera = { ...camera, x: camera.x + width / 2 - px, y: camera.y + height / 2 - py };
    }
    paint();
  }

  function recolour() {
    if (!points) return;
    const page = store.get();
    const known = !isBlind(page) && ['ready', 'waiting'].includes(points.header.guesses);
    const modes = /** @type {Mode[]} */ (Object.keys(MODES)).filter((one) => known || one === 'class' || one === 'round');
    if (!modes.includes(mode)) mode = 'class';
    select.replaceChildren(...modes.map((one) => h('option', { value: one, selected: one === mode }, MODES[one])));
    colours = colouring(points, mode, theme(), (id) => className(page, id) || `class ${id}`);
    hidden = new Uint8Array(points.count);
    const out = colours.entries.map(({ name }) => (hiddenNames.has(name) ? 1 : 0));
    for (let at = 0; at < points.count; at += 1) hidden[at] = out[colours.category[at]];
    reorder();
    drawSide();
    hideCard();
    canvas.setAttribute('aria-label', `${counted(points.count, 'image')} as points, coloured by ${MODES[mode].toLowerCase()}; the counts are in the table`);
    paint();
  }

  function reorder() {
    if (colours) order = drawOrder(colours.category, 1, chosen);
  }

  function drawSide() {
    if (!colours || !points) return;
    const used = colours.entries.filter(({ count }, at) => count || (at > 0 && at <= (mode === 'class' ? points?.header.classes.length ?? 0 : 0)));
    const rows = used.map((entry) => legendRow(entry, !hiddenNames.has(entry.name), () => toggle(entry.name)));
    const anyHidden = hiddenNames.size > 0;
    const all = h('button', { class: 'link', type: 'button', 'data-act': 'all', onclick: () => { for (const { name } of used) anyHidden ? hiddenNames.delete(name) : hiddenNames.add(name); recolour(); } }, anyHidden ? 'Show all' : 'Hide all');
    const waits = points.header.guesses === 'waiting' && (mode === 'guess' || mode === 'certainty');
    side.replaceChildren(
      h('div', { class: 'map-side-head' }, h('h2', {}, MODES[mode]), all),
      waits ? h('p', { class: 'soft small' }, 'The model is still looking at the images; more guesses appear in a moment.') : '',
      h('ul', { class: 'map-legend', 'aria-label': 'Click to hide or show' }, ...rows),
      h('details', { class: 'map-table' }, h('summary', {}, 'Table of counts'), table(MODES[mode], used, points.count)),
      h('p', { class: 'soft small map-about' }, about(points.header, points.count)));
  }

  /** @param {string} name */
  function toggle(name) {
    if (!hiddenNames.delete(name)) hiddenNames.add(name);
    recolour();
    const rows = /** @type {HTMLElement[]} */ ([...side.querySelectorAll('.map-legend button')]);
    rows.find((row) => row.dataset.name === name)?.focus();
  }

  function paint() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (!points || !colours || !size.width) return;
      painter.draw({ x: points.x, y: points.y, order, category: colours.category, colours: colours.entries.map((one) => one.colour), hidden, chosen }, camera, radius());
      canvas.dataset.camera = JSON.stringify(camera);
    });
  }

  const radius = () => radiusOf(points?.count ?? 0, camera.scale / wholeMap(size.width, size.height).scale);

  // -- looking

  /** @param {{scale: number, x: number, y: number}} next */
  function look(next) {
    fitted = false;
    camera = heldCamera(next, size.width, size.height);
    hideCard();
    paint();
  }
  /** @param {number} factor @param {number} [px] @param {number} [py] */
  function zoomBy(factor, px = size.width / 2, py = size.height / 2) {
    look(zoomedCamera(camera, factor, px, py, wholeMap(size.width, size.height).scale));
  }
  function whole() {
    look(wholeMap(size.width, size.height));
    fitted = true;
  }
  /** @param {number} dx @param {number} dy */
  const pan = (dx, dy) => look({ ...camera, x: camera.x + dx, y: camera.y + dy });

  /** @param {number} px @param {number} py @param {number} reach in px */
  function pointAt(px, py, reach) {
    if (!points || !index) return -1;
    return nearest(points, index, ...toMap(camera, px, py), reach / camera.scale, hidden);
  }

  /** @param {number} px @param {number} py */
  function hover(px, py) {
    showCard(pointAt(px, py, Math.max(LOOK, radius() + 2)));
  }

  /** @param {number} at */
  function showCard(at) {
    if (at < 0 || !points) return hideCard();
    if (at === shownAt) return;
    shownAt = at;
    const [px, py] = toCanvas(camera, points.x[at], points.y[at]);
    card.dataset.key = points.key(at);
    card.replaceChildren(h('img', { src: imageUrl({ key: points.key(at) }, 160), alt: '', draggable: false }), h('div', { class: 'map-card-text' }, ...facts(at)));
    card.hidden = false;
    const [width, height] = [card.offsetWidth, card.offsetHeight];
    card.style.left = `${Math.max(8, Math.min(size.width - width - 8, px + (px > size.width - width - 30 ? -width - 16 : 16)))}px`;
    card.style.top = `${Math.max(8, Math.min(size.height - height - 8, py - height / 2))}px`;
    stage.dataset.over = '';
  }

  function hideCard() {
    shownAt = -1;
    card.hidden = true;
    delete stage.dataset.over;
  }

  /** @param {number} at */
  function facts(at) {
    if (!points) return [];
    const page = store.get();
    const { klass, guess, certainty, round, header } = points;
    const name = (/** @type {number} */ code) => (code === OTHER ? 'Other' : className(page, header.classes[code - 1]));
    const lines = [klass[at] ? h('b', {}, nameTag(name(klass[at]))) : h('span', { class: 'soft' }, 'Not labelled')];
    if (guess[at] && !isBlind(page)) lines.push(h('span', { class: 'map-guess' }, icon('spark'), nameTag(name(guess[at])), certainty[at] === UNSURE ? '' : h('span', { class: 'soft' }, percent(certainty[at] / (UNSURE - 1)))));
    if (round[at]) lines.push(h('span', { class: 'soft small' }, `Round ${round[at]}`));
    return lines;
  }

  /** After a key: the image in the middle. */
  function lookAtMiddle() {
    const at = pointAt(size.width / 2, size.height / 2, Math.min(size.width, size.height) / 4);
    showCard(at);
    if (at >= 0) speak(card.innerText.replaceAll('\n', ', '));
  }

  // -- selecting

  /** @param {boolean} on */
  function setLasso(on) {
    lassoing = on;
    lassoButton.setAttribute('aria-pressed', String(on));
    stage.toggleAttribute('data-lasso', on);
    if (on) {
      hideCard();
      speak('Draw around images to select them');
    }
  }

  /** @param {[number, number][]} corners @param {boolean} done */
  function lasso(corners, done) {
    line.setAttribute('d', corners.length && !done ? `M${corners.map((one) => one.join(' ')).join('L')}Z` : '');
    if (!done || !points) return;
    setLasso(false);
    choose(inside(points, corners.map(([px, py]) => toMap(camera, px, py)), hidden));
  }

  function selectView() {
    if (!points) return;
    const [[left, top], [right, bottom]] = [toMap(camera, 0, 0), toMap(camera, size.width, size.height)];
    choose(inside(points, [[left, top], [right, top], [right, bottom], [left, bottom]], hidden));
  }

  /** @param {Uint32Array} rows */
  function choose(rows) {
    if (!points) return;
    if (!rows.length) {
      clearChosen();
      return speak('No image selected');
    }
    chosen = new Uint8Array(points.count);
    for (const at of rows) chosen[at] = 1;
    chosenBar.replaceChildren(h('b', {}, `${counted(rows.length, 'image')} selected`),
      h('button', { class: 'main', type: 'button', 'data-act': 'gallery', onclick: () => toGallery([...rows]) }, icon('images'), 'Show in gallery'),
      h('button', { class: 'quiet', type: 'button', 'data-act': 'clear', 'aria-label': 'Clear the selection', title: 'Clear the selection (Escape)', onclick: clearChosen }, icon('close')));
    chosenBar.hidden = false;
    place.dataset.chosen = String(rows.length);
    speak(`${counted(rows.length, 'image')} selected`);
    reorder();
    paint();
  }

  function clearChosen() {
    chosen = null;
    chosenBar.hidden = true;
    delete place.dataset.chosen;
    reorder();
    paint();
  }

  /** @param {number[]} rows */
  function toGallery(rows) {
    if (!points) return;
    const { key } = points;
    sessionStorage.setItem(SELECTION, JSON.stringify(rows.map(key)));
    go('gallery');
  }

  /** @param {number} px @param {number} py @param {boolean} touched */
  function press(px, py, touched) {
    const at = pointAt(px, py, touched ? 2 * LOOK : LOOK);
    if (at < 0) return hideCard();
    if (touched && at !== shownAt) return showCard(at); // a finger cannot hover: the first touch shows, the second opens
    toGallery([at]);
  }

  function escape() {
    if (lassoing) setLasso(false);
    else if (chosen) clearChosen();
    else if (!card.hidden) hideCard();
    else go('label');
  }

  listenToGestures(stage, { pan, zoom: zoomBy, look: hover, leave: hideCard, press, lassoing: () => lassoing, lasso });
  new ResizeObserver(() => store.get().view === 'map' && resize()).observe(stage);
  new MutationObserver(recolour).observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);
  store.watch((page) => [isBlind(page), page.server?.classes.map((one) => one.name).join('\n')], () => recolour());
  store.watch((page) => [page.server?.balance?.reduce((sum, one) => sum + one.labelled, 0), page.server?.round?.id], ({ view }) => {
    if (view === 'map' && points && performance.now() - loadedAt > FRESH) void open();
  });

  const moved = (/** @type {number} */ dx, /** @type {number} */ dy) => () => {
    pan(dx * size.width, dy * size.height);
    lookAtMiddle();
  };
  const zoomed = (/** @type {number} */ factor) => () => {
    zoomBy(factor);
    lookAtMiddle();
  };
  return {
    open,
    close: hideCard,
    keys: {
      plus: zoomed(STEP), minus: zoomed(1 / STEP), zoom: whole, skip: () => setLasso(!lassoing), escape,
      left: moved(0.1, 0), right: moved(-0.1, 0), up: moved(0, 0.1), down: moved(0, -0.1),
      enter: () => shownAt >= 0 && toGallery([shownAt]),
    },
  };
}

const theme = () => {
  const kept = document.documentElement.dataset.theme;
  if (kept === 'light' || kept === 'dark') return kept;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
};
