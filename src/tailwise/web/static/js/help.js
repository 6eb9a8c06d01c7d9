/** The help: every key and gesture on one sheet, opened with "?". */
import { byId, h, icon, keycap } from './dom.js';
import { nextTheme } from './theme.js';

/** @type {[string, [string[], string][]][]} */
const SECTIONS = [
  ['Answer', [
    [['1', '–', '9', '0'], 'the first ten classes'],
    [['⇧', '1', '–', '0'], 'the next ten'],
    [['/'], 'find a class by typing, in every view (more than 20 classes)'],
    [['⏎'], 'accept what the model suggests'],
    [['o'], 'other: none of the classes'],
    [['s'], 'skip: leave it to others'],
    [['f'], 'flag the image for others to look at'],
    [['n'], 'comment on the image'],
    [['u', '⌫', 'Ctrl Z'], 'undo, also after a reload'],
  ]],
  ['Look', [
    [['←', '→'], 'images before and after; answer again to change'],
    [['z'], 'zoom; also the wheel or two fingers'],
    [['v'], 'brightness and contrast'],
    [['b'], 'hide or show the model’s suggestions'],
    [['i'], 'guidelines: what belongs to each class'],
  ]],
  ['Grid', [
    [['g'], 'many images of one proposed class'],
    [['← ↑ ↓ →'], 'from image to image'],
    [['x', 'Space'], 'take an image out, or in again; ⇧ and a click: all from the last one'],
    [['z'], 'enlarge, with all classes; also the right mouse button'],
    [['v'], 'invert: what is out goes in'],
    [['1', '–', '0'], 'another class for this image'],
    [['⏎'], 'accept all that are selected'],
  ]],
  ['Gallery', [
    [['a'], 'every image: filter, find, hunt for short classes'],
    [['Space'], 'select; ⇧ and a click: all from the last one'],
    [['/', '1', '–', '0'], 'label all that are selected'],
    [['⏎'], 'open an image; in a hunt accept the selected ones'],
    [['u'], 'take the whole change back'],
  ]],
  ['Review', [
    [['e', 'c'], 'likely label errors, conflicts'],
    [['⏎', 'k'], 'errors: take the suggestion, keep the label'],
    [['1', '–', '0'], 'conflicts and duplicates: this answer is right'],
    [['/', 'o'], 'another class, or other'],
    [['u'], 'take the last decision back'],
  ]],
  ['Map', [
    [['m'], 'every image as a point'],
    [['+', '−', 'z'], 'zoom in, out, the whole map'],
    [['← ↑ ↓ →'], 'move'],
    [['s'], 'lasso: select by drawing around'],
  ]],
  ['Page', [
    [['l', 'g', 'a', 'm'], 'label, grid, gallery, map'],
    [['e', 'c', 'd', 'r'], 'label errors, conflicts, dashboard, rounds'],
    [['p'], 'progress and balance'],
    [['t'], 'light or dark'],
    [['?'], 'this sheet'],
  ]],
];

export function makeHelp() {
  const close = h('button', { class: 'quiet', type: 'button', 'aria-label': 'Close', onclick: () => dialog.close() }, icon('close'));
  const sheet = SECTIONS.map(([title, rows]) => h('section', {}, h('h3', {}, title), h('dl', {}, ...rows.flatMap(row))));
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet help', 'aria-labelledby': 'help-title' },
    h('header', {}, h('h2', { id: 'help-title' }, 'Keys and gestures'), close),
    h('div', { class: 'columns' }, ...sheet),
    h('footer', {}, h('p', { class: 'soft small' }, 'On a phone: swipe to look back and forth, two fingers to zoom. “Saved” means that the answer is on the server’s disk; until then it is kept in this browser.'),
      h('button', { class: 'plain', type: 'button', onclick: nextTheme }, 'Light or dark'))));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  dialog.addEventListener('keydown', (event) => event.key === '?' && dialog.close());
  document.body.append(dialog);
  const open = () => dialog.open || dialog.showModal();
  byId('help-open').addEventListener('click', open);
  return { open };
}

/** @param {[string[], string]} row */
function row([caps, text]) {
  const keys = caps.map((cap) => (cap === '–' ? h('span', {}, '–') : keycap(cap, cap)));
  return [h('dt', {}, ...keys), h('dd', {}, text)];
}
