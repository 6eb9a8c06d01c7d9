/** Light, dark, or as the system has it; remembered in this browser. */
import { byId, icon } from './dom.js';

const KEEP = 'tailwise.theme';
const CYCLE = ['auto', 'light', 'dark'];
const ICONS = { auto: 'auto', light: 'sun', dark: 'moon' };
const NAMES = { auto: 'as the system has it', light: 'light', dark: 'dark' };

const now = () => {
  const kept = localStorage.getItem(KEEP) ?? 'auto';
  return /** @type {'auto'|'light'|'dark'} */ (CYCLE.includes(kept) ? kept : 'auto');
};

function show() {
  const theme = now();
  const button = byId('theme');
  document.documentElement.dataset.theme = theme;
  button.replaceChildren(icon(ICONS[theme]));
  button.title = `Colours: ${NAMES[theme]} (t)`;
  button.setAttribute('aria-label', `Colours: ${NAMES[theme]}. Change`);
}

export function nextTheme() {
  localStorage.setItem(KEEP, CYCLE[(CYCLE.indexOf(now()) + 1) % CYCLE.length]);
  show();
}

export function makeTheme() {
  byId('theme').addEventListener('click', nextTheme);
  addEventListener('storage', show); // another tab has changed it
  show();
}
