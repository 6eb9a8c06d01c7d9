/** Flags and comments on the image on show, and in the dialog of one image: kept in the outbox like answers, shown with who wrote them and when. */
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
  /** @type {(() => void)[]} */ const drawings = []; // of the places that show notes
  /** @type {{image: string, back: HTMLElement, changed: () => void}|null} */ let about = null; // what the dialog is about

  const list = h('ul', { class: 'comments' });
  const left = h('span', { class: 'soft small end' });
  const box = /** @type {HTMLTextAreaElement} */ (h('textarea', { id: 'comment-box', rows: 3, maxLength: LONGEST, dir: 'auto', placeholder: 'What should others know about this image?', oninput: counted, onkeydown: keys }));
  const save = h('button', { class: 'main', type: 'submit', 'data-act': 'save-comment' }, 'Save comment', keycap('Ctrl ⏎'));
  const form = h('form', { onsubmit: submit }, h('label', { for: 'comment-box' }, 'Comment'), box, h('div', { class: 'comment-foot' }, left, save));
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet comment-sheet', 'aria-labelledby': 'comment-title' },
    h('header', {}, h('h2', { id: 'comment-title' }, 'Comments on this image'), h('button', { class: 'quiet', type: 'button', 'aria-label': 'Close', onclick: () => dialog.close() }, icon('close'))), list, form));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  dialog.addEventListener('close', () => about?.back.focus({ preventScroll: true }));
  document.body.append(dialog);

  /** @param {string} image @returns {Notes} */
  const of = (image) => known.get(image) ?? { flagged: false, items: [] };
  /** @param {string} image */
  const commentsOn = (image) => of(image).items.filter((one) => one.kind === 'comment');

  function draw() {
    for (const drawOne of drawings) drawOne();
    const items = about ? of(about.image).items : [];
    list.replaceChildren(...items.map(row));
    list.hidden = !items.length;
  }

  /** What the server knows of an image, unless something may be under way that it does not know. @param {string} image @param {Notes} notes */
  function take(image, notes) {
    if (!store.get().waiting || !known.has(image)) known.set(image, notes);
    draw();
  }

  /** @param {string} image @param {() => void} changed */
  function flag(image, changed) {
    if (!image) return;
    const before = of(image);
    const flagged = !before.flagged;
    const own = { annotator: store.get().annotator, kind: 'flag', text: '', at: Date.now() * 1000 };
    known.set(image, { flagged, items: [...commentsOn(image), ...(flagged ? [own] : [])] });
    draw();
    toast(flagged ? 'Flagged for others to look at' : 'No longer flagged');
    void annotate(image, flagged ? 'flag' : 'unflag').then(changed);
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    const text = box.value.trim();
    if (!about || !text) return box.focus();
    const { image, changed } = about;
    const before = of(image);
    known.set(image, { ...before, items: [...before.items, { annotator: store.get().annotator, kind: 'comment', text, at: Date.now() * 1000 }] });
    box.value = '';
    draw();
    dialog.close();
    speak('Comment kept');
    void annotate(image, 'comment', text).then(changed);
  }

  function counted() {
    left.textContent = box.value.length > LONGEST - 200 ? `${LONGEST - box.value.length} characters left` : '';
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) submit(event);
  }

  /** @param {string} image @param {HTMLElement} back what gets the focus afterwards @param {() => void} changed */
  function open(image, back, changed) {
    if (!image || dialog.open) return;
    about = { image, back, changed };
    draw();
    dialog.showModal();
    box.focus();
  }

  /** The two buttons in the corner of the stage, with the newest comment. */
  function makeStageBar() {
    const current = () => shown(store.get().line)?.key ?? '';
    const nothing = () => {};
    const bar = { flag: () => flag(current(), nothing), open: () => open(current(), byId('stage'), nothing) };
    const flagButton = h('button', { class: 'corner', type: 'button', 'data-act': 'flag', title: 'Flag for others to look at (f)', 'aria-label': 'Flag', 'aria-pressed': 'false', onclick: bar.flag }, icon('flag'));
    const count = h('span', { class: 'corner-count' });
    const openButton = h('button', { class: 'corner', type: 'button', 'data-act': 'comment', title: 'Comment (n)', 'aria-label': 'Comments', onclick: bar.open }, icon('comment'), count);
    const newest = h('p', { class: 'newest-comment', hidden: true });
    const element = h('div', { class: 'image-notes', role: 'group', 'aria-label': 'Flag and comments' }, flagButton, openButton, newest);
    // The stage zooms where it is pressed; a press here is for the buttons.
    for (const type of ['pointerdown', 'pointerup', 'click', 'dblclick', 'wheel']) element.addEventListener(type, (event) => event.stopPropagation(), { passive: true });
    byId('stage').append(element);
    drawings.push(drawBar);

    function drawBar() {
      const image = current();
      const comments = commentsOn(image);
      element.hidden = !image;
      flagButton.setAttribute('aria-pressed', String(of(image).flagged));
      count.textContent = comments.length ? String(comments.length) : '';
      openButton.setAttribute('aria-label', comments.length ? `Comments, ${comments.length}` : 'Comments');
      const last = comments.at(-1);
      newest.hidden = !last;
      if (last) newest.replaceChildren(nameTag(last.annotator), h('span', { dir: 'auto' }, last.text));
    }

    /** @param {string} image */
    async function load(image) {
      try {
        take(image, await get('/api/notes', { image }));
      } catch (trouble) {
        note(trouble);
      }
    }

    store.watch((state) => [shown(state.line)?.key], () => {
      clearTimeout(timer);
      const image = current();
      if (dialog.open && about?.back === byId('stage')) dialog.close(); // another image is on show now
      draw();
      if (image) timer = setTimeout(() => void load(image), PAUSE);
    });
    return bar;
  }

  /**
   * Two buttons with words, and all notes, for a dialog of one image.
   * @param {() => void} changed when a note of the person is kept
   */
  function makeNotesList(changed) {
    let image = '';
    const flagButton = h('button', { class: 'plain', type: 'button', 'data-act': 'detail-flag', 'aria-pressed': 'false', onclick: () => flag(image, changed) }, icon('flag'), 'Flag');
    const openButton = h('button', { class: 'plain', type: 'button', 'data-act': 'detail-comment', onclick: () => open(image, openButton, changed) }, icon('comment'), 'Comment');
    const notes = h('ul', { class: 'comments' });
    const element = h('div', { class: 'notes-list', role: 'group', 'aria-label': 'Flag and comments', hidden: true }, h('h3', {}, 'Notes'), h('div', { class: 'detail-acts' }, flagButton, openButton), notes);
    drawings.push(drawList);

    function drawList() {
      const { flagged, items } = of(image);
      element.hidden = !image;
      flagButton.setAttribute('aria-pressed', String(flagged));
      flagButton.lastChild?.replaceWith(flagged ? 'Remove the flag' : 'Flag');
      notes.replaceChildren(...items.map(row));
    }

    /** @param {string} key @param {Note[]} all that were ever noted of it */
    function show(key, all) {
      image = key;
      const flagged = all.findLast((one) => one.kind !== 'comment')?.kind === 'flag';
      const last = flagged ? all.findLast((one) => one.kind === 'flag') : null;
      take(key, { flagged, items: all.filter((one) => one.kind === 'comment' || one === last) });
    }
    return { element, show };
  }

  return { ...makeStageBar(), makeNotesList };
}

/** @param {Note} one */
function row(one) {
  const when = new Date(one.at / 1000);
  return h('li', { class: 'comment', 'data-kind': one.kind }, avatar(one.annotator),
    h('div', {}, h('p', { class: 'comment-head' }, nameTag(one.annotator), h('time', { class: 'soft small', dateTime: when.toISOString() }, when.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' }))),
      one.kind === 'flag' ? h('p', { class: 'soft' }, icon('flag'), ' flagged this image') : h('p', { class: 'comment-text', dir: 'auto' }, one.text)));
}
