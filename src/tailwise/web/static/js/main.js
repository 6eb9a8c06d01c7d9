/** The page begins here: makes the parts and ties them together. */
import { makeCards } from './cards.js';
import { flash, makeClassButtons } from './class_buttons.js';
import { makeClassFilter } from './class_filter.js';
import { makeConflicts } from './conflicts.js';
import { byId } from './dom.js';
import { emptiness, makeEmpty } from './empty.js';
import { makeGrid } from './grid.js';
import { makeHelp } from './help.js';
import { listenToKeys, placeOf } from './keys.js';
import { keepLooking, look } from './link.js';
import { keptName, makeNamePrompt } from './name_prompt.js';
import { go, makeNav, togglePanel } from './nav.js';
import { announceRounds } from './next_round.js';
import { makeRounds } from './rounds.js';
import { makeSaveStatus } from './save_status.js';
import { startSession } from './session.js';
import { makeStage } from './stage.js';
import { isBlind, liveClasses, store, toggleBlind } from './state.js';
import { makeStrip } from './strip.js';
import { makeTheme, nextTheme } from './theme.js';
import { moved, open, shown } from './timeline.js';
import { toast } from './toast.js';
import { makeTools } from './tools.js';

const RETRY = 1_000; // ms

makeTheme();
makeNav(() => emptiness(store.get()) !== null);
makeEmpty();
store.set({ annotator: keptName() });
await look();
while (!store.get().server) {
  await new Promise((resolve) => setTimeout(resolve, RETRY));
  await look();
}

const campaign = /** @type {import('./types.js').ServerState} */ (store.get().server).campaign.id;
let gridImages = () => /** @type {string[]} */ ([]); // there is no grid yet while the session starts
const session = await startSession(campaign, () => gridImages());
const { answering } = session;

const move = (/** @type {number} */ step) => store.set({ line: moved(store.get().line, step) });
const undo = () => void answering.undo();
/** @param {number} id */
function choose(id) {
  if (!shown(store.get().line)) return;
  flash(id);
  answering.say('label', id);
  filter.clear();
}
function accept() {
  const { line } = store.get();
  const guess = shown(line)?.prelabel;
  if (guess && !isBlind(store.get()) && liveClasses(store.get()).some((klass) => klass.id === guess.class_id)) choose(guess.class_id);
}
function blind() {
  if (store.get().server?.settings?.blind) return toast('This campaign is labelled blind');
  toggleBlind();
  toast(isBlind(store.get()) ? 'Blind: what the model thinks is hidden' : 'What the model thinks is shown');
}

const tools = makeTools({
  left: () => move(-1), right: () => move(1), undo, skip: () => answering.say('skip'), other: () => answering.say('other'),
  zoom: () => zoom.toggle(), blind,
});
const zoom = makeStage({ move, accept, zoomChanged: tools.zoomChanged });
makeClassButtons(choose);
const filter = makeClassFilter({
  element: byId('filter'), list: byId('classes'), choose, leave: () => byId('stage').focus({ preventScroll: true }),
});
makeStrip();
makeCards();
makeSaveStatus({
  retry: () => void session.outbox.retry().then(session.showRefusals),
  forget: () => void session.outbox.forget(store.get().refusals).then(session.showRefusals),
});
announceRounds();
const help = makeHelp();
const prompt = makeNamePrompt((name) => void session.rename(name));
const conflicts = makeConflicts({ settle: answering.settle, unsettle: answering.unsettle, quiet: session.quiet });
const rounds = makeRounds();
const grid = makeGrid({
  sayAll: answering.sayAll,
  quiet: session.quiet,
  tabs: session.tabs,
  release(images) {
    const queued = new Set(open(store.get().line).map((item) => item.key)); // these are held for the label view
    void session.lease.release(images.filter((image) => !queued.has(image)));
  },
});

gridImages = grid.images;

const pages = {
  help: help.open, panel: togglePanel, theme: nextTheme, blind,
  label: () => go('label'), grid: () => go('grid'), conflicts: () => go('conflicts'), rounds: () => go('rounds'), escape: () => go('label'),
  gallery: () => go('gallery'), map: () => go('map'), errors: () => go('errors'), dashboard: () => go('dashboard'),
};
/** @type {Record<string, import('./keys.js').Bindings>} */
const KEYS = {
  label: {
    ...pages,
    undo,
    digit: (event) => {
      const klass = liveClasses(store.get())[Number(placeOf(event))];
      if (klass) choose(klass.id);
    },
    left: () => move(-1), right: () => move(1), enter: accept, space: accept, skip: () => answering.say('skip'), other: () => answering.say('other'),
    zoom: zoom.toggle, escape: zoom.reset, filter: () => filter.focus(),
  },
  grid: {
    ...pages,
    digit: (event) => {
      const id = grid.atPlace(Number(placeOf(event)));
      if (id) grid.assign(id);
    },
    left: () => grid.move('left'), right: () => grid.move('right'), up: () => grid.move('up'), down: () => grid.move('down'),
    except: grid.toggle, space: grid.toggle, other: () => grid.assign(null), enter: grid.acceptAll,
    undo: () => void answering.undo().then(session.quiet).then(grid.open),
  },
  conflicts: {
    ...pages,
    digit: (event) => {
      const id = conflicts.atPlace(Number(placeOf(event)));
      if (id) conflicts.choose(id);
    },
    other: () => conflicts.choose(null), left: () => conflicts.move(-1), right: () => conflicts.move(1), zoom: conflicts.zoom,
    undo: () => void conflicts.undo(),
  },
  rounds: { ...pages, undo: () => toast('Nothing to undo here: undo takes back answers in Label (l) and settlements in Conflicts (c)') },
};

/** @typedef {{open: () => void, close?: () => void, keys?: import('./keys.js').Bindings}} View */
/** Views that load when they are first opened; each module's `makeView` gets the session. @type {Record<string, () => Promise<any>>} */
const LATER = {
  gallery: () => import('./gallery.js'), map: () => import('./map.js'),
  errors: () => import('./errors.js'), duplicates: () => import('./duplicates.js'),
  dashboard: () => import('./dashboard.js'), classes: () => import('./classes.js'),
};
/** @type {Record<string, View>} */ const views = { grid, conflicts, rounds };
listenToKeys(() => ({ ...pages, ...(KEYS[store.get().view] ?? views[store.get().view]?.keys) }));

let before = '';
store.watch((state) => [state.view, state.annotator], async ({ view, annotator }) => {
  if (before !== view) views[before]?.close?.();
  before = view;
  if (!annotator) return;
  if (!views[view] && LATER[view]) {
    const { makeView } = await LATER[view]();
    views[view] ??= makeView(session);
  }
  if (store.get().view === view) views[view]?.open();
});
store.watch((state) => [isBlind(state)], ({ view }) => view === 'grid' && grid.reopen());
store.watch((state) => [state.link, state.server?.round?.id], ({ link, view }) => link === 'up' && view === 'grid' && grid.retry());

keepLooking();
if (store.get().annotator) await session.resume();
else prompt.open();
document.documentElement.dataset.ready = 'yes'; // for those who watch the page from outside
