/** The page begins here: makes the parts and ties them together. */
import { makeAdjust } from './adjust.js';
import { makeCards } from './cards.js';
import { flash, makeClassButtons } from './class_buttons.js';
import { makeClassFilter } from './class_filter.js';
import { byId, styled } from './dom.js';
import { emptiness, makeEmpty } from './empty.js';
import { makeGuidelines } from './guidelines.js';
import { makeHelp } from './help.js';
import { makeImageNotes } from './image_notes.js';
import { listenToKeys, placeOf, useHotkeys } from './keys.js';
import { keepLooking, look } from './link.js';
import { keptName, makeNamePrompt } from './name_prompt.js';
import { go, makeNav, togglePanel } from './nav.js';
import { announceRounds } from './next_round.js';
import { makeSaveStatus } from './save_status.js';
import { startSession } from './session.js';
import { makeStage } from './stage.js';
import { isBlind, liveClasses, store, toggleBlind } from './state.js';
import { makeStrip } from './strip.js';
import { makeTheme, nextTheme } from './theme.js';
import { moved, shown } from './timeline.js';
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
let gridImages = () => /** @type {string[]} */ ([]); // there is no grid before it is opened
const session = await startSession(campaign, () => gridImages());
const { answering } = session;

const move = (/** @type {number} */ step) => store.set({ line: moved(store.get().line, step) });
const undo = () => void answering.undo();
/** @param {number} id */
function choose(id) {
  const item = shown(store.get().line);
  if (!item) return;
  if (store.get().painted === item.key) flash(id);
  answering.say('label', id);
  filter.clear();
}
function accept() {
  const { line } = store.get();
  const guess = shown(line)?.prelabel;
  if (guess && !isBlind(store.get()) && liveClasses(store.get()).some((klass) => klass.id === guess.class_id)) choose(guess.class_id);
}
function blind() {
  if (store.get().server?.settings?.blind) return toast('Suggestions are hidden in this campaign');
  toggleBlind();
  toast(isBlind(store.get()) ? 'The model’s suggestions are hidden' : 'The model’s suggestions are shown');
}

const tools = makeTools({
  left: () => move(-1), right: () => move(1), undo, skip: () => answering.say('skip'), other: () => answering.say('other'),
  zoom: () => zoom.toggle(), adjust: () => adjust.toggle(), blind,
});
const adjust = makeAdjust({ changed: tools.adjustChanged });
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
const guidelines = makeGuidelines();
const imageNotes = makeImageNotes(answering.annotate);
store.watch((state) => [state.server?.classes_version], (state) => useHotkeys(liveClasses(state)));
const prompt = makeNamePrompt((name) => void session.rename(name));
const pages = {
  help: help.open, guide: guidelines.open, panel: togglePanel, theme: nextTheme, blind,
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
    zoom: zoom.toggle, adjust: adjust.toggle, escape: zoom.reset, filter: () => filter.focus(), flag: imageNotes.flag, comment: imageNotes.open,
  },
};

/** @typedef {{open: () => void, close?: () => void, keys?: import('./keys.js').Bindings, images?: () => string[], reopen?: () => void, retry?: () => void}} View */
/** Views that load when they are first opened, each with its style; `makeView` gets the session. @type {Record<string, () => Promise<any>>} */
const LATER = {
  grid: () => import('./grid.js'),
  gallery: () => styled('gallery', import('./gallery.js')), map: () => styled('map', import('./map.js')),
  errors: () => styled('review', import('./errors.js')), duplicates: () => styled('review', import('./duplicates.js')),
  conflicts: () => styled('review', import('./conflicts.js')),
  dashboard: () => styled('dashboard', import('./dashboard.js')),
  rounds: () => styled('dashboard', import('./rounds.js').then(({ makeRounds }) => ({ makeView: () => ({ ...makeRounds(), keys: { undo: nothingToUndo } }) }))),
  classes: () => import('./classes.js'),
};
/** @type {Record<string, View>} */ const views = {};
gridImages = () => views.grid?.images?.() ?? [];
listenToKeys(() => ({ ...pages, ...(KEYS[store.get().view] ?? views[store.get().view]?.keys) }));

const nothingToUndo = () => toast('Nothing to undo here: undo takes back answers in Label (l) and settlements in Conflicts (c)');

let before = '';
store.watch((state) => [state.view, state.annotator], async ({ view, annotator }) => {
  if (before !== view) views[before]?.close?.();
  before = view;
  if (!annotator) return;
  try {
    if (!views[view] && LATER[view]) {
      const { makeView } = await LATER[view]();
      views[view] ??= makeView({ ...session, imageNotes });
    }
  } catch (trouble) {
    toast('This view does not load. The page may have been updated: load it again.', { tone: 'bad', lasts: 8_000 });
    throw trouble;
  }
  if (store.get().view === view) views[view]?.open();
});
store.watch((state) => [isBlind(state)], ({ view }) => view === 'grid' && views.grid?.reopen?.());
store.watch((state) => [state.link, state.server?.round?.id], ({ link, view }) => link === 'up' && view === 'grid' && views.grid?.retry?.());

keepLooking();
if (store.get().annotator) await session.resume();
else prompt.open();
document.documentElement.dataset.ready = 'yes'; // for those who watch the page from outside
