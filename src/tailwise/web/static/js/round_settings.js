/** The settings of the next round: a form for the owner, a summary for everyone else. */
import { Refused, post } from './api.js';
import { counted, h, percent } from './dom.js';
import { look, note } from './link.js';
import { toast } from './toast.js';

/** @typedef {{strategy: string, balance: string, budget: number, overlap: number, audit: number, wanted_accuracy: number}} Settings */
/** @typedef {{name: string, what: string}} Choice */

const BALANCES = [
  { name: 'auto', title: 'As far as the model can be trusted', what: 'Rare classes get as many images as others, as far as the model can find them. Recommended.' },
  { name: 'none', title: 'Not at all', what: 'The most useful images, of whatever class: rare classes stay rare.' },
  { name: 'within 5%', title: 'To within 5 %', what: 'The number of labels of each class comes within 5 % of the target, if the pool allows it.' },
];

/** @param {(settings: Settings) => void} saved */
export function makeSettingsForm(saved) {
  const strategy = /** @type {HTMLSelectElement} */ (h('select', { id: 'set-strategy', 'aria-describedby': 'set-strategy-what' }));
  const balance = /** @type {HTMLSelectElement} */ (h('select', { id: 'set-balance', 'aria-describedby': 'set-balance-what' }));
  const budget = number('set-budget', 1, 1_000_000);
  const overlap = number('set-overlap', 1, 100);
  const audit = number('set-audit', 0, 50);
  const wanted = number('set-wanted', 0, 100);
  const [strategyText, balanceText] = [h('p', { class: 'soft small', id: 'set-strategy-what' }), h('p', { class: 'soft small', id: 'set-balance-what' })];
  const fault = h('p', { class: 'fault', role: 'alert' });
  const button = h('button', { class: 'main', type: 'submit', 'data-act': 'save-settings' }, 'Save for the next round');
  /** @type {Choice[]} */ let choices = [];
  let shown = '';
  let changed = false;
  const form = h('form', { class: 'round-settings', onsubmit: save, oninput: () => { changed = true; explain(); } },
    field('How images are chosen', strategy, strategyText),
    field('Balance between classes', balance, balanceText),
    field('Images of a round', budget, 'How many images are chosen at a time. Smaller rounds let the model learn sooner.'),
    field('People per image', overlap, 'With 2, two people answer every image, and you see how far they agree.'),
    field('Drawn at random, in percent', audit, '5 to 10 percent of each round show how good the model really is. 0: no audit.'),
    field('Wanted accuracy, in percent', wanted, 'The audit says when you can stop: when the model is at least this good.'),
    h('div', { class: 'save-row' }, button, fault));

  function explain() {
    strategyText.textContent = choices.find((choice) => choice.name === strategy.value)?.what ?? '';
    balanceText.textContent = BALANCES.find((one) => one.name === balance.value)?.what ?? 'A setting that was made outside the page.';
  }

  /** @param {Settings} settings @param {Choice[]} strategies */
  function show(settings, strategies) {
    const text = JSON.stringify(settings);
    if (text === shown || changed) return; // what is being typed stays
    shown = text;
    choices = strategies;
    const option = (/** @type {string} */ value, title = value) => h('option', { value }, title);
    const others = strategies.filter((choice) => !choice.what);
    const known = strategies.some((choice) => choice.name === settings.strategy);
    strategy.replaceChildren(...strategies.filter((choice) => choice.what).map((choice) => option(choice.name)), ...(known ? [] : [option(settings.strategy)]), h('optgroup', { label: 'Others' }, ...others.map((choice) => option(choice.name))));
    const own = BALANCES.some((one) => one.name === settings.balance) ? [] : [option(settings.balance)];
    balance.replaceChildren(...BALANCES.map((one) => option(one.name, one.title)), ...own);
    [strategy.value, balance.value, budget.value, overlap.value] = [settings.strategy, settings.balance, String(settings.budget), String(settings.overlap)];
    [audit.value, wanted.value] = [settings.audit, settings.wanted_accuracy].map((share) => String(Number((100 * share).toPrecision(6))));
    explain();
  }

  /** @param {Event} event */
  async function save(event) {
    event.preventDefault();
    fault.textContent = '';
    button.toggleAttribute('disabled', true);
    try {
      const reply = await post('/api/dashboard/settings', {
        strategy: strategy.value, balance: balance.value, budget: Number(budget.value), overlap: Number(overlap.value),
        audit: Number(audit.value) / 100, wanted_accuracy: Number(wanted.value) / 100,
      });
      changed = false;
      toast('Saved for the next round');
      saved(reply.settings);
      void look();
    } catch (trouble) {
      if (trouble instanceof Refused && !trouble.denied) fault.textContent = trouble.message;
      else note(trouble);
    } finally {
      button.toggleAttribute('disabled', false);
    }
  }

  return { form, show };
}

/** What the next round will be, for those who cannot change it. @param {Settings} settings */
export function settingsText(settings) {
  const people = settings.overlap > 1 ? `${settings.overlap} people answer each image` : 'each image is answered once';
  const drawn = settings.audit > 0 ? `${percent(settings.audit)} of them are drawn at random` : 'none is drawn at random';
  return `The next round has ${counted(settings.budget, 'image')}; ${people}, and ${drawn}. Ask the owner of the campaign to change this.`;
}

/** @param {string} id @param {number} min @param {number} max */
function number(id, min, max) {
  return /** @type {HTMLInputElement} */ (h('input', { id, type: 'number', min: String(min), max: String(max), step: id === 'set-audit' || id === 'set-wanted' ? '0.1' : '1', required: true, inputMode: 'decimal', 'aria-describedby': `${id}-what` }));
}

/** @param {string} title @param {HTMLElement} control @param {HTMLElement|string} what */
function field(title, control, what) {
  return h('div', { class: 'field' }, h('label', { for: control.id }, title), control, typeof what === 'string' ? h('p', { class: 'soft small', id: `${control.id}-what` }, what) : what);
}
