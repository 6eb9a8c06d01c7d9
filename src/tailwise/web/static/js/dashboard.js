/** The dashboard: advice in one sentence, how well it goes, which classes are short, who labels, the next round. */
import { Away, Refused, get, post } from './api.js';
import { avatar, legend, progressBar } from './cards.js';
import { curve, curveText, range, sparkline } from './charts.js';
import { byId, counted, h, icon, nameTag, percent } from './dom.js';
import { note } from './link.js';
import { go } from './nav.js';
import { makeSettingsForm, settingsText } from './round_settings.js';
import { isOwner, shortName, store } from './state.js';
import { toast } from './toast.js';

const CALM = 15_000; // ms between two looks
const BUSY = 1_500; // while the model is measured
const GROWN = 1.1; // as many labels as at the last measurement, times this, are measured by themselves
const FEW = 12; // classes that are shown before one asks for all
const SHORT = 34; // characters of a class name
const ONE_LINE = 13; // those that fit next to a bar on a phone
const WORTH = { yes: 'Another round is worth it.', no: 'You can stop here.', unclear: 'Whether another round is worth it is not clear yet.' };

/** @typedef {{value: number|null, low: number, high: number, images: number}} Estimate */
/** @typedef {{class_id: number, name: string, labelled: number, target: number, wanted: number, short: number}} Need */

/** @param {any} _session */
export function makeView(_session) {
  const place = byId('dashboard');
  /** @type {any} */ let reply = null;
  /** @type {ReturnType<typeof setTimeout>|undefined} */ let timer;
  let asked = false; // whether a measurement was asked for since the view was opened
  /** @type {Set<string>} */ const opened = new Set(); // lists that are shown whole
  const settings = makeSettingsForm((now) => { if (reply) reply.overview.settings = now; void load(); });
  const exporting = h('button', { class: 'plain', type: 'button', 'data-act': 'export', onclick: () => void download() }, 'Export labels');
  const cards = Object.fromEntries(['advice', 'curve', 'needs', 'audit', 'confused', 'round', 'people', 'settings'].map((name) => [name, h('section', { class: `card dash-${name}`, 'data-card': name, 'aria-labelledby': `dash-${name}-title` })]));
  place.append(h('header', { class: 'view-head' }, h('h1', {}, 'Dashboard'), h('span', { class: 'end' }, exporting)), 
    h('div', { class: 'dash', hidden: true }, cards.advice, h('div', { class: 'column' }, cards.curve, cards.audit, cards.confused), h('div', { class: 'column' }, cards.needs, cards.round, cards.people), cards.settings));

  async function load() {
    clearTimeout(timer);
    try {
      reply = await get('/api/dashboard');
      if (store.get().view !== 'dashboard') return;
      if (wanting()) await measure();
      show();
    } catch (trouble) {
      note(trouble);
    }
    if (store.get().view === 'dashboard') timer = setTimeout(load, reply?.job.state === 'running' ? BUSY : CALM);
  }

  /** Whether the measures are so old that they are made again without being asked for. */
  function wanting() {
    const { labelled, rounds, measures, measures_fresh: fresh } = reply.overview;
    if (asked || fresh || !labelled || reply.job.state === 'running' || !isOwner(store.get())) return false;
    return !measures || measures.rounds !== rounds || labelled >= GROWN * measures.labels;
  }

  async function measure() {
    asked = true;
    try {
      reply.job = (await post('/api/dashboard/measure', {})).job;
    } catch (trouble) {
      if (!(trouble instanceof Refused) || trouble.code !== 'running') throw trouble;
    }
  }

  async function download() {
    try {
      const response = await fetch('/api/dashboard/labels.csv', { credentials: 'same-origin', cache: 'no-store' }).catch((trouble) => { throw new Away(String(trouble)); });
      if (!response.ok) throw new Refused(response.status, '', (await response.json().catch(() => null))?.error?.message ?? `the server answered ${response.status}`);
      const link = /** @type {HTMLAnchorElement} */ (h('a', { href: URL.createObjectURL(await response.blob()), download: 'labels.csv' }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
    } catch (trouble) {
      if (trouble instanceof Refused && !trouble.denied) toast(trouble.message, { tone: 'bad' });
      else note(trouble);
    }
  }

  function show() {
    const { overview, job } = reply;
    const owner = isOwner(store.get());
    const again = () => void measure().then(load, note);
    fill('advice', adviceCard(overview, job, again));
    fill('curve', curveCard(overview, job, cards.curve.clientWidth));
    fill('needs', needsCard(overview, opened, show));
    fill('audit', auditCard(overview, opened, show));
    fill('confused', confusedCard(overview));
    fill('round', roundCard(overview.last_round, opened, show));
    fill('people', peopleCard(overview));
    exporting.hidden = !owner || !overview.labelled;
    if (!cards.settings.firstChild) cards.settings.append(h('h2', { id: 'dash-settings-title' }, 'Settings of the next round'), owner ? settings.form : h('p', { class: 'soft', 'data-act': 'settings-text' }));
    if (owner) settings.show(overview.settings, overview.strategies);
    else /** @type {HTMLElement} */ (cards.settings.lastElementChild).textContent = settingsText(overview.settings);
    const grid = /** @type {HTMLElement} */ (place.querySelector('.dash'));
    grid.hidden = false;
    place.dataset.ready = overview.measures_fresh ? 'measured' : 'counted';
  }

  /** New content; a list that was open stays open. @param {string} name @param {(Node|string|false|null)[]} parts */
  function fill(name, parts) {
    const before = cards[name].querySelector('details')?.open;
    const focus = /** @type {HTMLElement|null} */ (cards[name].contains(document.activeElement) ? document.activeElement : null)?.dataset.act;
    cards[name].replaceChildren(.../** @type {(Node|string)[]} */ (parts.filter(Boolean)));
    const details = cards[name].querySelector('details');
    if (details && before) details.open = true;
    if (focus) /** @type {HTMLElement|null} */ (cards[name].querySelector(`[data-act="${focus}"]`))?.focus();
  }

  let wide = 0;
  new ResizeObserver(() => {
    if (cards.curve.clientWidth === wide || !reply || place.hidden) return;
    wide = cards.curve.clientWidth;
    fill('curve', curveCard(reply.overview, reply.job, wide));
  }).observe(cards.curve);

  return {
    open() {
      asked = false;
      cards.settings.replaceChildren(); // the role may have changed
      place.querySelector('.dash')?.removeAttribute('hidden');
      void load();
    },
    close: () => clearTimeout(timer),
  };
}

/** @param {string} name @param {string} text */
const title = (name, text) => h('h2', { id: `dash-${name}-title` }, text);

/** The one sentence. @param {any} overview */
export function adviceText({ labelled, rounds, measures }) {
  if (!labelled) return rounds ? 'Nothing is labelled yet: label the open round first.' : 'Nothing is labelled yet: choose the first batch in Rounds.';
  if (!measures) return 'How good the model is has not been measured yet.';
  if (measures.audit?.stop?.reached) return measures.audit.sentences[0];
  return `${WORTH[/** @type {'yes'} */ (measures.advice.worth_it)]} ${measures.advice.because}`;
}

/** @param {any} overview @param {any} job @param {() => void} again */
function adviceCard(overview, job, again) {
  const { measures, measures_fresh: fresh, labelled } = overview;
  const running = job.state === 'running';
  const share = Math.round(100 * (job.share ?? 0));
  const old = measures && !fresh ? `Measured with ${counted(measures.labels, 'label')}. ` : '';
  const arrows = { yes: 'for another round', no: 'against it', unclear: 'neither' };
  return [
    h('h2', { id: 'dash-advice-title', class: 'unseen' }, 'Advice'),
    h('p', { class: 'advice', 'data-worth': measures?.audit?.stop?.reached ? 'no' : measures?.advice.worth_it ?? '' }, adviceText(overview)),
    h('div', { class: 'advice-row soft small', role: 'status' },
      running ? h('span', { class: 'measuring' }, progressBar(share, 100, 'Measuring the model'), `Measuring the model … ${share}\u202f%`) : old,
      !running && labelled > 0 && !fresh && isOwner(store.get()) && h('button', { class: 'link', type: 'button', 'data-act': 'measure', onclick: again }, 'Measure now'),
      job.state === 'failed' && h('span', { class: 'fault' }, `Not measured: ${job.error ?? 'it failed'}`)),
    measures?.advice.evidence.length && h('details', {}, h('summary', {}, 'Details'), h('ul', { class: 'evidence' }, ...measures.advice.evidence.map((/** @type {any} */ one) => h('li', { 'data-leans': one.leans }, one.text, one.leans !== 'unclear' && h('span', { class: 'soft' }, ` (${arrows[/** @type {'yes'} */ (one.leans)]})`))))),
  ];
}

/** @param {any} overview @param {any} job @param {number} width */
function curveCard({ measures }, job, width) {
  const points = measures?.curve ?? [];
  const none = job.state === 'running' ? 'The learning curve is being measured.' : 'After a round or two with labels of several classes, this shows how the model improves.';
  if (!points.length) return [title('curve', 'Learning curve'), h('p', { class: 'soft' }, none)];
  const cell = (/** @type {string|number} */ text) => h('td', {}, text);
  return [
    title('curve', 'Learning curve'),
    h('p', { class: 'soft small' }, 'How often the model is right on labels that it has not seen, averaged over the classes. The band shows how sure that is.'),
    curve(points, Math.max(260, width - 36)),
    h('p', { class: 'small' }, curveText(points)),
    h('details', {}, h('summary', {}, 'As a table'), h('table', { class: 'plain-table' },
      h('thead', {}, h('tr', {}, ...['after round', 'labels', 'right', 'between'].map((text) => h('th', { scope: 'col' }, text)))),
      h('tbody', {}, ...points.map((/** @type {any} */ point) => h('tr', {}, cell(point.round), cell(point.labels.toLocaleString('en')), cell(percent(point.value)), cell(`${percent(point.low)} and ${percent(point.high)}`)))))),
  ];
}

/** @param {{class_id: number, name: string}} one */
const classTag = ({ class_id, name }) => nameTag(name, shortName(store.get().server?.classes ?? [], class_id, SHORT) || name);

/** A list of which the first rows are shown. @param {HTMLElement[]} rows @param {string} name @param {string} kind @param {Set<string>} opened @param {() => void} show */
function folded(rows, name, kind, opened, show) {
  const whole = opened.has(name) || rows.length <= FEW + 2;
  const toggle = () => { if (!opened.delete(name)) opened.add(name); show(); };
  return [
    h('ul', { class: rows.some((row) => (row.querySelector('.name')?.textContent ?? '').length > ONE_LINE) ? `${kind} long` : kind }, ...(whole ? rows : rows.slice(0, FEW))),
    rows.length > FEW + 2 && h('button', { class: 'link', type: 'button', 'data-act': `all-${name}`, 'aria-expanded': whole, onclick: toggle }, whole ? 'Show fewer classes' : `Show all ${rows.length} classes`),
  ];
}

/** @param {{needs: Need[]}} overview @param {Set<string>} opened @param {() => void} show */
function needsCard({ needs }, opened, show) {
  const short = needs.filter((need) => need.short);
  const most = Math.max(1, ...needs.map((need) => Math.max(need.labelled, need.target)));
  if (!needs.some((need) => need.labelled || need.target >= 1)) return [title('needs', 'Balance'), h('p', { class: 'soft' }, 'Nothing is labelled yet. This shows how many labels each class has and should have.')];
  const [first] = short;
  const text = !first ? 'Every class has as many labels as it should.' : `${first.name} is ${counted(first.short, 'label')} short${short.length > 1 ? `, and ${counted(short.length - 1, 'other class is', 'other classes are')} short, too` : ''}.`;
  return [
    title('needs', 'Balance'),
    h('p', {}, text),
    legend({ fill: 'labelled', target: 'target' }),
    ...folded(needs.map((need) => needRow(need, most)), 'needs', 'needs', opened, show),
  ];
}

/** @param {Need} need @param {number} most */
function needRow(need, most) {
  const [bar, mark] = [h('span', { class: 'old' }), h('span', { class: 'mark' })];
  bar.style.width = `${(100 * need.labelled) / most}%`;
  mark.style.insetInlineStart = `${(100 * need.target) / most}%`;
  const hunt = () => {
    sessionStorage.setItem('tailwise.hunt', String(need.class_id));
    go('gallery');
  };
  return h('li', {}, classTag(need), h('span', { class: 'track', 'aria-hidden': 'true' }, bar, mark),
    h('span', { class: 'count' }, h('span', { class: 'unseen' }, `${need.name}: `), need.labelled, h('span', { class: 'unseen' }, ` labelled, target ${need.wanted}`)),
    need.short ? h('button', { class: 'find-more', type: 'button', 'data-act': `hunt-${need.class_id}`, title: `Look for more images of ${need.name}`, 'aria-label': `${need.short} short: look for more images of ${need.name}`, onclick: hunt }, `${need.short} short`, icon('right')) : h('span', { class: 'enough' }, icon('check'), h('span', { class: 'unseen' }, 'enough')));
}

/** @param {any} overview @param {Set<string>} opened @param {() => void} show */
function auditCard({ measures, settings }, opened, show) {
  const audit = measures?.audit;
  const head = title('audit', 'Audit: images drawn at random');
  if (!audit?.images) {
    const how = settings.audit > 0 ? audit?.sentences[0] ?? 'The images that are drawn at random count when their round is complete.' : 'Let a few images of each round be drawn at random (below, in the settings of the next round). They show how good the model is on all images, and when you can stop.';
    return [head, h('p', { class: 'soft' }, how)];
  }
  const most = Math.min(1, 1.05 * Math.max(...audit.classes.map((/** @type {any} */ one) => one.share.high), 0.05));
  const place = (/** @type {any} */ one) => one.share.value || 2; // the rarest first, those that were not drawn last
  const rows = [...audit.classes].sort((a, b) => place(a) - place(b)).map((one) =>
    h('li', {}, classTag(one), range(one.share, most), estimateText(one.share), range(one.recall), estimateText(one.recall)));
  return [
    head,
    audit.accuracy && h('p', { class: 'figure' }, h('b', {}, percent(audit.accuracy.value)), h('span', { class: 'soft' }, `right, between ${percent(audit.accuracy.low)} and ${percent(audit.accuracy.high)}`)),
    ...audit.sentences.map((/** @type {string} */ text) => h('p', { class: 'small' }, text)),
    h('p', { class: 'audit-head soft small', 'aria-hidden': 'true' }, h('span', {}, 'class'), h('span', {}, 'share of the pool'), h('span', {}, 'recognised')),
    ...folded(rows, 'audit', 'audits', opened, show),
    h('p', { class: 'soft small' }, 'Each bar is a 95\u202f% interval: of 20 such intervals about one misses the truth.'),
  ];
}

/** @param {Estimate} one */
function estimateText(one) {
  if (one.value === null) return h('span', { class: 'estimate soft', title: 'not measured' }, '–', h('span', { class: 'unseen' }, ' not measured'));
  const text = percentOf(one.value);
  return h('span', { class: 'estimate', title: `between ${percentOf(one.low)} and ${percentOf(one.high)}` }, text, h('span', { class: 'unseen' }, `, between ${percentOf(one.low)} and ${percentOf(one.high)}`));
}

/** With a decimal where it is small. @param {number} share */
const percentOf = (share) => (share > 0 && share < 0.0995 ? `${(100 * share).toFixed(1)}\u202f%` : percent(share));

/** Pairs of classes that are confused most often. @param {any} overview */
function confusedCard({ confused, measures }) {
  const of = (/** @type {string} */ by) => confused.filter((/** @type {any} */ pair) => pair.by === by);
  const open = (/** @type {string[]} */ images) => {
    sessionStorage.setItem('tailwise.selection', JSON.stringify(images));
    go('gallery');
  };
  const rows = (/** @type {any[]} */ pairs) => h('ul', { class: 'confused' }, ...pairs.map((pair) => h('li', { 'data-by': pair.by, dir: 'auto' }, pair.images.length
    ? h('button', { class: 'link', type: 'button', title: 'Show these images in the gallery', onclick: () => open(pair.images) }, pair.text) : pair.text)));
  const [model, people] = [of('model'), of('people')];
  const none = measures ? 'Neither the model nor people confuse any two classes.' : 'After the first measurement, this shows which classes the model takes for which.';
  return [
    title('confused', 'Confused classes'),
    model.length > 0 && h('p', { class: 'soft small' }, 'By the model, of the labelled images of a class, on labels that it has not seen:'),
    model.length > 0 && rows(model),
    people.length > 0 && h('p', { class: 'soft small' }, 'By people, of the images that two have answered, one of them with either class:'),
    people.length > 0 && rows(people),
    !confused.length && h('p', { class: 'soft' }, none),
  ];
}

/** @param {any} round @param {Set<string>} opened @param {() => void} show */
function roundCard(round, opened, show) {
  if (!round) return [title('round', 'The last round'), h('p', { class: 'soft' }, 'No round has been chosen yet.')];
  const most = Math.max(1, ...round.classes.map((/** @type {any} */ one) => Math.max(one.labelled, one.expected ?? 0)));
  const foreseen = round.classes.some((/** @type {any} */ one) => one.expected !== null);
  const rows = round.classes.map((/** @type {any} */ one) => {
    const [bar, mark] = [h('span', { class: 'old' }), h('span', { class: 'mark', hidden: one.expected === null })];
    bar.style.width = `${(100 * one.labelled) / most}%`;
    mark.style.insetInlineStart = `${(100 * (one.expected ?? 0)) / most}%`;
    return h('li', {}, classTag(one), h('span', { class: 'track', 'aria-hidden': 'true' }, bar, mark), h('span', { class: 'count' }, one.labelled, one.expected === null ? '' : h('span', { class: 'soft' }, ` of ${one.expected.toFixed(0)}`), h('span', { class: 'unseen' }, one.expected === null ? ' labelled' : ' expected')));
  });
  return [
    title('round', `Round ${round.id}${round.open ? ', which is open' : ''}: asked for and got`),
    h('p', {}, round.text, round.audited ? ` ${counted(round.audited, 'more was', 'more were')} drawn at random.` : ''),
    foreseen && legend({ fill: 'labelled', target: 'expected by the model' }),
    ...folded(rows, 'round', 'asked', opened, show),
  ];
}

/** @param {any} overview */
function peopleCard({ work, work_until: until, agreement }) {
  if (!work.length) return [title('people', 'People'), h('p', { class: 'soft' }, 'Nobody has labelled on this page yet.')];
  const most = Math.max(1, ...work.flatMap((/** @type {any} */ one) => one.hours));
  const end = new Date(until / 1000).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
  const rows = work.map((/** @type {any} */ one) => {
    const rate = one.per_hour ? `${Math.round(one.per_hour)} an hour` : '';
    const says = `${one.annotator}: ${counted(one.answers, 'answer')}${rate ? `, ${rate} while labelling` : ''}, in the ${one.hours.length} hours up to ${end}`;
    return h('li', {}, avatar(one.annotator), nameTag(one.annotator), sparkline(one.hours, most, says), h('span', { class: 'count' }, `${one.answers.toLocaleString('en')}`, h('span', { class: 'soft small' }, rate)));
  });
  return [
    title('people', 'People'),
    h('p', { class: 'soft small' }, `Answers per hour, in the 48 hours up to ${end}.`),
    h('ul', { class: 'workers' }, ...rows),
    agreement.length > 0 && h('div', { class: 'agreement' }, h('h3', {}, 'Agreement'), ...agreement.map((/** @type {string} */ text) => h('p', {}, text))),
  ];
}
