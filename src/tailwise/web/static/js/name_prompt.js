/** Who is labelling: asked on the first visit, kept in this browser, changed by a click on the name. */
import { avatar } from './cards.js';
import { checkName } from './check_name.js';
import { byId, h, nameTag } from './dom.js';
import { store } from './state.js';

const KEEP = 'tailwise.annotator';
export const keptName = () => {
  const checked = checkName(localStorage.getItem(KEEP) ?? '');
  return 'name' in checked ? checked.name : '';
};

/** @param {(name: string) => void} named called with each new name */
export function makeNamePrompt(named) {
  const fault = h('p', { class: 'fault', id: 'name-fault', role: 'alert' });
  const known = h('div', { class: 'known' });
  const box = /** @type {HTMLInputElement} */ (h('input', { id: 'name-box', type: 'text', autocomplete: 'nickname', maxLength: 120, dir: 'auto', 'aria-describedby': 'name-fault', placeholder: 'e.g. Ada' }));
  const form = h('form', { onsubmit: submit },
    h('h2', { id: 'name-title' }, 'Who is labelling?'),
    h('p', { class: 'soft' }, 'Your name is stored with every answer, so that several people can work at once and nobody sees an image twice.'),
    h('label', { for: 'name-box' }, 'Your name'), box, fault, known,
    h('button', { class: 'main', type: 'submit' }, 'Start'));
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet name-prompt', 'aria-labelledby': 'name-title' }, form));
  // There must be a name: Escape does nothing, and what closes the dialog otherwise, as a phone's back key, opens it again.
  dialog.addEventListener('keydown', (event) => event.key === 'Escape' && !store.get().annotator && event.preventDefault());
  dialog.addEventListener('close', () => store.get().annotator || dialog.showModal());
  document.body.append(dialog);

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    choose(box.value);
  }

  /** @param {string} typed */
  function choose(typed) {
    const checked = checkName(typed);
    fault.textContent = 'fault' in checked ? checked.fault : '';
    if (!('name' in checked)) return box.focus();
    localStorage.setItem(KEEP, checked.name);
    dialog.close();
    named(checked.name);
  }

  function open() {
    const { annotator, server } = store.get();
    const others = (server?.annotators ?? []).filter((name) => name !== annotator).slice(0, 8);
    known.replaceChildren(...others.map((name) => h('button', { type: 'button', class: 'chip', onclick: () => choose(name) }, avatar(name), nameTag(name))));
    box.value = annotator;
    if (!dialog.open) dialog.showModal();
    box.select();
  }

  const person = byId('person');
  person.addEventListener('click', open);
  store.watch((state) => [state.annotator], ({ annotator }) => {
    person.hidden = !annotator;
    person.replaceChildren(avatar(annotator), nameTag(annotator));
    person.title = `${annotator}: change the name`;
    person.setAttribute('aria-label', `Labelling as ${annotator}. Change the name`);
  });
  return { open };
}
