/** Which view is open: the address says it (#label, #grid …), so that back and reload do what one expects. */
import { byId } from './dom.js';
import { store } from './state.js';

/** The views under each tab; the first one opens with it. @type {Record<string, string[]>} */
const TABS = {
  label: ['label'], grid: ['grid'], gallery: ['gallery'], map: ['map'],
  review: ['errors', 'duplicates', 'conflicts'],
  dashboard: ['dashboard', 'rounds', 'classes'],
};
const VIEWS = Object.values(TABS).flat();

/** @param {string} view */
export function go(view) {
  location.hash = view;
}

function read() {
  const view = location.hash.slice(1);
  store.set({ view: VIEWS.includes(view) ? view : 'label' });
}

/** @param {() => boolean} isEmpty whether the label view has nothing to show */
export function makeNav(isEmpty) {
  addEventListener('hashchange', read);
  read();
  store.watch((state) => [state.view, isEmpty()], ({ view }) => {
    const open = view === 'label' && isEmpty() ? 'empty' : view;
    for (const section of document.querySelectorAll('section.view')) {
      if (section instanceof HTMLElement) section.hidden = section.dataset.view !== open;
    }
    for (const tab of document.querySelectorAll('.tabs a, .subtabs a')) {
      const { view: own, tab: group } = /** @type {HTMLElement} */ (tab).dataset;
      const current = group ? TABS[group].includes(view) : own === view;
      if (current) tab.setAttribute('aria-current', group ? 'true' : 'page');
      else tab.removeAttribute('aria-current');
    }
    for (const row of document.querySelectorAll('.subtabs')) {
      if (row instanceof HTMLElement) row.hidden = !TABS[row.dataset.tab ?? '']?.includes(view);
    }
    document.body.dataset.view = open;
  });
  store.watch((state) => [state.server?.conflicts], ({ server }) => {
    for (const id of ['conflict-count', 'review-count']) {
      byId(id).hidden = !server?.conflicts;
      byId(id).textContent = String(server?.conflicts ?? '');
    }
  });
  store.watch((state) => [state.server?.campaign.name], ({ server }) => {
    if (!server) return;
    byId('campaign').textContent = server.campaign.name;
    byId('campaign').title = server.campaign.name;
    document.title = `${server.campaign.name} · Tailwise`;
  });
  const panel = byId('panel-toggle');
  panel.addEventListener('click', togglePanel);
  document.querySelector('.frame')?.addEventListener('click', (event) => {
    const outside = event.target instanceof Element && !event.target.closest('.panel');
    if (outside && document.body.hasAttribute('data-panel')) togglePanel();
  });
}

/** On small screens the panel covers the rest; on large ones it is always there. */
export function togglePanel() {
  const open = document.body.toggleAttribute('data-panel');
  byId('panel-toggle').setAttribute('aria-expanded', String(open));
}
