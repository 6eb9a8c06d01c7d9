/** Flags and comments on the image on show: kept in the outbox like answers, shown with who wrote them and when. */
import { get } from './api.js';
import { avatar } from './cards.js';
import { byId, h, icon, keycap, nameTag, speak } from './dom.js';
import { note } from './link.js';
import { store } from './state.js';
import { shown } from './timeline.js';
import { toast } from './toast.js';

const PAUSE = 150; // ms that an image stays before its notes are asked for
const LONGEST = 2_000; // characters

/** @typedef {{annotator: string, kind: string, text: string, at: number}} Note */
/** @typedef {{flagged: boolean, items: Note[]}} Notes */

/** @param {(image: string, kind: 'flag'|'unflag'|'comment', text?: string) => Promise<void>} annotate */
export function makeImageNotes(annotate) {
  /** @type {Map<string, Notes>} */ const known = new Map(); // by image
  /** @type {ReturnType<typeof setTimeout>|undefined} */ let timer;
  const flagButton = h('button', { class: 'corner', type: 'button', 'data-act': 'flag', title: 'Flag for others to look at (f)', 'aria-label': 'Flag', 'aria-pressed': 'false', onclick: flag }, icon('flag'));
  const count = h('span', { class: 'corner-count' });
  const openButton = h('button', { class: 'corner', type: 'button', 'data-act': 'comment', title: 'Comment (n)', 'aria-label': 'Comments', onclick: open }, icon('comment'), count);
  const newest = h('p', { class: 'newest-comment', hidden: true });
  const bar = h('div', { class: 'image-notes', role: 'group', 'aria-label': 'Flag and comments' }, flagButton, openButton, newest);
  // The stage zooms where it is pressed; a press here is for the buttons.
  for (const type of ['pointerdown', 'pointerup', 'click', 'dblclick', 'wheel']) bar.addEventListener(type, (event) => event.stopPropagation(), { passive: true });
  byId('stage').append(bar);

  const list = h('ul', { class: 'comments' });
  const left = h('span', { class: 'soft small end' });
  const box = /** @type {HTMLTextAreaElement} */ (h('textarea', { id: 'comment-box', rows: 3, maxLength: LONGEST, dir: 'auto', placeholder: 'What should others know about this image?', oninput: counted, onkeydown: keys }));
  const save = h('button', { class: 'main', type: 'submit', 'data-act': 'save-comment' }, 'Save comment', keycap('Ctrl ⏎'));
  const form = h('form', { onsubmit: submit }, h('label', { for: 'comment-box' }, 'Comment'), box, h('div', { class: 'comment-foot' }, left, save));
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet comment-sheet', 'aria-labelledby': 'comment-title' },
    h('header', {}, h('h2', { id: 'comment-title' }, 'Comments on this image'), h('button', { class: 'quiet', type: 'button', 'aria-label': 'Close', onclick: () => dialog.close() }, icon('close'))), list, form));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  dialog.addEventListener('close', () => byId('stage').focus({ preventScroll: true }));
  document.body.append(dialog);

  const current = () => shown(store.get().line)?.key ?? '';
  /** @param {string} image @returns {Notes} */
  const of = (image) => known.get(image) ?? { flagged: false, items: [] };

  function draw() {
    const image = current();
    const { flagged, items } = of(image);
    const comments = items.filter((one) => one.kind === 'comment');
    bar.hidden = !image;
    flagButton.setAttribute('aria-pressed', String(flagged));
    count.textContent = comments.length ? String(comments.length) : '';
    openButton.setAttribute('aria-label', comments.length ? `Comments, ${comments.length}` : 'Comments');
    const last = comments[comments.length - 1];
    newest.hidden = !last;
    if (last) newest.replaceChildren(nameTag(last.annotator), h('span', { dir: 'auto' }, last.text));
    list.replaceChildren(...items.map(row));
    list.hidden = !items.length;
  }

  /** @param {string} image */
  async function load(image) {
    try {
      const notes = await get('/api/notes', { image });
      if (store.get().waiting) return; // something may be under way that this reply does not know
      known.set(image, notes);
      if (current() === image) draw();
    } catch (trouble) {
      note(trouble);
    }
  }

  function flag() {
    const image = current();
    if (!image) return;
    const before = of(image);
    const flagged = !before.flagged;
    const own = { annotator: store.get().annotator, kind: 'flag', text: '', at: Date.now() * 1000 };
    known.set(image, { flagged, items: [...before.items.filter((one) => one.kind === 'comment'), ...(flagged ? [own] : [])] });
    draw();
    toast(flagged ? 'Flagged for others to look at' : 'No longer flagged');
    void annotate(image, flagged ? 'flag' : 'unflag');
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    const image = current();
    const text = box.value.trim();
    if (!image || !text) return box.focus();
    const before = of(image);
    known.set(image, { ...before, items: [...before.items, { annotator: store.get().annotator, kind: 'comment', text, at: Date.now() * 1000 }] });
    box.value = '';
    draw();
    dialog.close();
    speak('Comment kept');
    void annotate(image, 'comment', text);
  }

  function counted() {
    left.textContent = box.value.length > LONGEST - 200 ? `${LONGEST - box.value.length} characters left` : '';
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) submit(event);
  }

  function open() {
    if (!current() || dialog.open) return;
    draw();
    dialog.showModal();
    box.focus();
  }

  store.watch((state) => [shown(state.line)?.key], () => {
    clearTimeout(timer);
    const image = current();
    if (dialog.open) dialog.close(); // another image is on show now
    draw();
    if (image) timer = setTimeout(() => void load(image), PAUSE);
  });
  return { flag, open };
}

/** @param {Note} one */
function row(one) {
  const when = new Date(one.at / 1000);
  return h('li', { class: 'comment', 'data-kind': one.kind }, avatar(one.annotator),
    h('div', {}, h('p', { class: 'comment-head' }, nameTag(one.annotator), h('time', { class: 'soft small', dateTime: when.toISOString() }, when.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' }))),
      one.kind === 'flag' ? h('p', { class: 'soft' }, icon('flag'), ' flagged this image') : h('p', { class: 'comment-text', dir: 'auto' }, one.text)));
}
