/** The classes view: order, names, keys, descriptions and examples, changed by the owner while others label. */
import { get, imageUrl, post, Refused } from './api.js';
import { makeClassRow } from './class_row.js';
import { byId, counted, h, icon } from './dom.js';
import { classDetails, learnClasses } from './guidelines.js';
import { look, note } from './link.js';
import { isOwner, store } from './state.js';

/** @typedef {import('./guidelines.js').Details} Details @typedef {import('./class_row.js').Row} Row */

const MOST_EXAMPLES = 12;

export function makeView() {
  const place = byId('classes-view');
  const list = h('ol', { class: 'class-list', 'aria-label': 'Classes in use' });
  const retired = h('ol', { class: 'class-list', 'aria-label': 'Retired classes' });
  const retiredPart = h('section', { hidden: true }, h('h2', {}, 'Retired'), h('p', { class: 'soft small' }, 'Not offered any more; their labels are kept.'), retired);
  const fault = h('p', { class: 'fault', role: 'alert' });
  const box = /** @type {HTMLInputElement} */ (h('input', { type: 'text', id: 'new-class', autocomplete: 'off', maxLength: 200, dir: 'auto', placeholder: 'Name of a new class' }));
  const form = h('form', { class: 'class-add', onsubmit: add }, h('label', { class: 'unseen', for: 'new-class' }, 'Name of a new class'), box, h('button', { class: 'main', type: 'submit' }, 'Add class'));
  const lead = h('p', { class: 'soft' });
  place.append(h('header', { class: 'view-head' }, h('h1', {}, 'Classes')), lead, form, fault, list, retiredPart);
  /** @type {Map<number, Row>} */ const rows = new Map();
  const chooser = makeChooser((id, examples) => change(id, { examples }));

  /** @param {number} id @param {object} patch @returns {Promise<boolean>} whether it was made */
  async function change(id, patch) {
    return send('/api/classes/edit', { class_id: id, ...patch }, rows.get(id)?.complain ?? (() => {}));
  }

  /** @param {string} path @param {object} body @param {(text: string) => void} complain */
  async function send(path, body, complain) {
    complain('');
    try {
      learnClasses(await post(path, body));
    } catch (trouble) {
      if (trouble instanceof Refused && !trouble.denied) complain(trouble.message);
      else {
        complain('The server does not answer. Nothing was changed: try again.');
        note(trouble);
      }
      return false;
    }
    await look(); // all parts of this page follow the state
    await draw();
    return true;
  }

  /** @param {Event} event */
  async function add(event) {
    event.preventDefault();
    const name = box.value.trim();
    if (!name) return box.focus();
    if (await send('/api/classes/add', { name }, (text) => void (fault.textContent = text))) box.value = '';
    box.focus();
  }

  const acts = {
    change,
    /** @param {number} id @param {number} to from 0 */
    move: (id, to) => change(id, { place: to + 1 }),
    choose: chooser.open,
    /** The places of rows on the screen, while one is dragged. */
    rows: () => [...list.children],
  };

  async function draw() {
    /** @type {Details[]} */ let all;
    try {
      all = await classDetails();
    } catch (trouble) {
      return note(trouble);
    }
    const owner = isOwner(store.get());
    const used = all.filter((klass) => !klass.retired);
    const focused = document.activeElement;
    arrange(list, used.map((klass, at) => rowOf(klass, at, used.length, owner)));
    arrange(retired, all.filter((klass) => klass.retired).map((klass) => rowOf(klass, -1, 0, owner)));
    if (focused instanceof HTMLElement && focused !== document.activeElement && place.contains(focused)) focused.focus();
    retiredPart.hidden = used.length === all.length;
    form.hidden = !owner;
    lead.textContent = owner ? 'Changes reach everybody who labels within seconds, without a reload. No label is ever lost.' : 'The owner’s link changes the classes. This is what belongs to each of them.';
    place.dataset.ready = String(used.length);
  }

  /** @param {Details} klass @param {number} at @param {number} count @param {boolean} owner */
  function rowOf(klass, at, count, owner) {
    const row = rows.get(klass.id) ?? makeClassRow(klass.id, acts);
    rows.set(klass.id, row);
    row.update(klass, at, count, owner);
    return row.element;
  }

  store.watch((state) => [state.server?.classes_version, state.server?.balance, state.server?.role], ({ view }) => view === 'classes' && void draw());
  return { open: () => void draw() };
}

/** Put elements into their order, and touch no more of them than necessary: what is being typed into stays. @param {HTMLElement} list @param {HTMLElement[]} wanted */
function arrange(list, wanted) {
  wanted.forEach((element, at) => {
    if (list.children[at] !== element) list.insertBefore(element, list.children[at] ?? null);
  });
  while (list.children.length > wanted.length) list.lastElementChild?.remove();
}

/** A dialog to choose examples among the labelled images of a class. @param {(id: number, examples: string[]) => Promise<boolean>} save */
function makeChooser(save) {
  /** @type {Set<string>} */ const chosen = new Set();
  /** @type {Details|null} */ let klass = null;
  const title = h('h2', { id: 'chooser-title' });
  const hint = h('p', { class: 'soft small' });
  const grid = h('div', { class: 'chooser-grid' });
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet chooser', 'aria-labelledby': 'chooser-title' },
    h('header', {}, title, h('button', { class: 'quiet', type: 'button', 'aria-label': 'Close', onclick: () => dialog.close() }, icon('close'))), hint, grid,
    h('footer', {}, h('span', {}), h('button', { class: 'main', type: 'button', 'data-act': 'save-examples', onclick: () => klass && void save(klass.id, [...chosen]).then((done) => done && dialog.close()) }, 'Save examples'))));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);

  function count() {
    hint.textContent = `${counted(chosen.size, 'example')} of at most ${MOST_EXAMPLES}. They are shown next to the keys while people label.`;
  }

  /** @param {import('./guidelines.js').Shown} one */
  function tile({ image, seal }) {
    const button = h('button', { type: 'button', class: 'example-tile', 'data-key': image, 'aria-label': 'Example', 'aria-pressed': String(chosen.has(image)), onclick: () => {
      if (!chosen.delete(image) && chosen.size < MOST_EXAMPLES) chosen.add(image);
      button.setAttribute('aria-pressed', String(chosen.has(image)));
      count();
    } }, h('img', { src: imageUrl({ key: image, seal }, 160), alt: '', loading: 'lazy' }), icon('check'));
    return button;
  }

  /** @param {Details} of */
  async function open(of) {
    klass = of;
    chosen.clear();
    for (const { image } of klass.examples) chosen.add(image);
    title.textContent = `Examples of ${klass.name}`;
    try {
      const { items } = await get('/api/classes/labelled', { class_id: klass.id });
      const more = items.filter((/** @type {{image: string}} */ one) => !chosen.has(one.image));
      grid.replaceChildren(...[...klass.examples, ...more].map(tile));
      if (!grid.children.length) grid.replaceChildren(h('p', { class: 'soft' }, 'No image is labelled as this class yet. Label some, and choose the clearest of them here.'));
    } catch (trouble) {
      return note(trouble);
    }
    count();
    dialog.showModal();
  }

  return { open };
}
