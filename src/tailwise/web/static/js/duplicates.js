/** Images that look alike, in groups: label a group once for all, first where labels differ. */
import { imageUrl, post } from './api.js';
import { byId, counted, h, nameTag } from './dom.js';
import { randomHex } from './ids.js';
import { look, note } from './link.js';
import { jobMessage, makeAnotherClass, makeFinder, undoButton, verdictButton, viewMessage } from './review_desk.js';
import { placeOf } from './keys.js';
import { answerText, className, isOwner, OWNER_ONLY, store } from './state.js';
import { toast } from './toast.js';

const MOST_TILES = 60;

/** @typedef {{image: string, seal: string, class_id: number|null, outcome: string|null}} Member */
/** @typedef {{images: Member[], size: number, disagree: boolean, unlabelled: number}} Group */
/** @typedef {{groups: Group[], count: number, images: number, disagree: number, installed: boolean, fresh: boolean, job: import('./types.js').Job}} Reply */
/** @typedef {{batch: string, group: Group, annotator: string}} Change */

/** @param {object} _session */
export function makeView(_session) {
  const place = byId('duplicates');
  /** @type {Reply|null} */ let reply = null;
  /** @type {any} */ let trouble = null;
  /** @type {Change[]} */ let made = [];
  /** @type {Set<string>} */ const passed = new Set(); // groups that were looked at and left, by their first image
  let at = 0;
  let busy = false;
  const another = makeAnotherClass((id) => void label(id));
  const finder = makeFinder('/api/review/duplicates', (found) => found.installed, (found, why) => {
    const now = groups()[at]?.images[0].image;
    reply = found ?? reply;
    trouble = why;
    at = placeOf(now ?? '');
    if (!another.isOpen()) draw(); // nothing moves while somebody picks a class
  });

  /** A group waits while its images have not all one label. @param {Group} group */
  const waits = (group) => (group.disagree || group.unlabelled > 0) && !passed.has(group.images[0].image);
  const groups = () => (reply?.groups ?? []).filter(waits);

  /** One answer for the whole group. @param {number|null} class_id */
  async function label(class_id) {
    const group = groups()[at];
    const { annotator } = store.get();
    if (!group || !annotator || busy) return;
    busy = true;
    const batch = `d${randomHex(12)}`;
    try {
      const { changed: images } = await post('/api/gallery/relabel', { annotator, batch, images: group.images.map((one) => one.image), class_id, found_by: 'duplicates' });
      made.push({ batch, group, annotator });
      replace(group, { ...group, disagree: false, unlabelled: 0, images: group.images.map((one) => ({ ...one, class_id, outcome: class_id === null ? 'other' : 'settled' })) });
      toast(`${counted(images, 'image')} labelled “${answerText(store.get(), { kind: class_id === null ? 'other' : 'label', class_id })}”`);
      void look();
    } catch (why) {
      note(why);
      toast(`Not labelled: ${/** @type {Error} */ (why).message || 'the server does not answer'}`, { tone: 'bad', lasts: 6_000 });
    }
    busy = false;
    draw();
  }

  /** @param {Group} old @param {Group} fresh */
  function replace(old, fresh) {
    if (reply) reply = { ...reply, groups: reply.groups.map((one) => (one.images[0].image === old.images[0].image ? fresh : one)) };
  }

  /** Leave a group as it is, until the page is loaded again. */
  function pass() {
    const group = groups()[at];
    if (group) passed.add(group.images[0].image);
    draw();
  }

  async function undo() {
    const last = made.findLast((one) => one.annotator === store.get().annotator);
    if (!last) return toast('Nothing to undo here');
    try {
      const { undone: images } = await post('/api/gallery/undo', { annotator: last.annotator, batch: last.batch, key: `u${randomHex(12)}` });
      made = made.filter((one) => one !== last);
      replace(last.group, last.group);
      toast(`Undone: ${counted(images, 'image')}`);
      goTo(last.group.images[0].image);
      void look();
    } catch (why) {
      note(why);
      toast(`Not undone: ${/** @type {Error} */ (why).message || 'the server does not answer'}`, { tone: 'bad', lasts: 6_000 });
    }
  }

  /** @param {string} image the first of a group */
  function goTo(image) {
    at = placeOf(image);
    draw();
  }

  /** @param {string} image */
  const placeOf = (image) => Math.max(0, groups().findIndex((group) => group.images[0].image === image));

  /** @param {number} step */
  function move(step) {
    at = Math.max(0, Math.min(groups().length - 1, at + step));
    another.close();
    draw();
  }

  /** The classes that images of a group have, most frequent first. @param {Group} group @returns {(number|null)[]} */
  function said(group) {
    /** @type {Map<number|null, number>} */ const counts = new Map();
    for (const one of group.images) if (one.class_id !== null || one.outcome === 'other') counts.set(one.class_id, (counts.get(one.class_id) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([id]) => id);
  }

  function draw() {
    const all = groups();
    at = Math.min(at, Math.max(0, all.length - 1));
    place.dataset.ready = String(all.length);
    const group = trouble ? undefined : all[at];
    const undoing = made.some((one) => one.annotator === store.get().annotator) ? undoButton(() => void undo(), 'Take the last group back') : '';
    const where = group ? h('p', { class: 'stats' }, `Group ${at + 1} of ${all.length}`, reply?.job.state === 'running' ? ' · images have changed: looking again …' : '') : '';
    place.replaceChildren(h('header', { class: 'view-head' }, h('h1', {}, title(all)), undoing, where), group ? desk(group) : nothing());
  }

  /** @param {Group[]} all */
  function title(all) {
    if (!all.length || trouble) return 'Duplicates';
    const differ = all.filter((group) => group.disagree).length;
    return `${counted(all.length, 'group')} of look-alikes${differ ? `, ${differ} with different labels` : ''}`;
  }

  /** @param {Group} group */
  function desk(group) {
    const state = store.get();
    const tiles = group.images.slice(0, MOST_TILES).map((one) => h('li', { class: 'look-alike' },
      h('img', { src: imageUrl({ key: one.image, seal: one.seal }, 512), alt: 'One of the images that look alike', 'data-key': one.image, loading: 'lazy' }),
      h('p', { class: 'small' }, one.class_id === null ? h('span', { class: 'soft' }, one.outcome === 'other' ? 'other' : 'unlabelled') : nameTag(className(state, one.class_id)))));
    const verdicts = said(group).map((id, index) => verdictButton({
      key: index < 10 ? String((index + 1) % 10) : '', name: id === null ? 'other' : String(id), main: index === 0,
      text: ['All are ', nameTag(answerText(state, { kind: id === null ? 'other' : 'label', class_id: id }))], act: () => void label(id),
    }));
    return h('div', { class: 'desk' }, h('ul', { class: 'look-alikes' }, ...tiles),
      h('div', { class: 'verdicts' },
        h('p', { class: 'finding' }, finding(group)),
        ...verdicts, another.element,
        verdictButton({ key: 's', name: 'pass', text: ['Leave as is'], act: pass })));
  }

  function nothing() {
    if (trouble) return viewMessage('away', 'Duplicates cannot be looked for now', String(trouble.message ?? trouble));
    if (!reply) return viewMessage('images', 'One moment …');
    if (!reply.installed) return viewMessage('key', 'This view needs imagehash', h('p', {}, h('code', {}, "pip install 'tailwise[review]'")), 'Install it where the server runs, and start the server again.');
    if (reply.job.state === 'running') return jobMessage('Looking for images that are alike …', reply.job);
    if (reply.job.state === 'failed' && !reply.fresh) return viewMessage('away', 'Duplicates could not be looked for', reply.job.error ?? '');
    if (!reply.count && !reply.fresh && !isOwner(store.get())) return viewMessage('key', 'Nobody has looked for duplicates yet', OWNER_ONLY);
    if (!reply.count) return viewMessage('check', 'No images look alike', 'Exact copies are known by their bytes, and are asked about only once.');
    return viewMessage('check', 'All groups have one label each', `${counted(reply.count, 'group')} with ${counted(reply.images, 'image')}.`);
  }

  return {
    open: finder.open,
    close: finder.close,
    keys: {
      /** @param {KeyboardEvent} event */
      digit: (event) => {
        const id = groups()[at] ? said(groups()[at])[Number(placeOf(event))] : undefined;
        if (id !== undefined) void label(id);
      },
      enter: () => {
        const [id] = groups()[at] ? said(groups()[at]) : [];
        if (id !== undefined) void label(id);
      },
      other: () => void label(null), skip: pass, filter: () => groups()[at] && another.open(), undo: () => void undo(), left: () => move(-1), right: () => move(1),
    },
  };
}

/** @param {Group} group */
function finding(group) {
  const left = group.unlabelled ? `${counted(group.unlabelled, 'is', 'are')} unlabelled` : '';
  if (group.disagree) return `${counted(group.size, 'image')} look alike, but are labelled differently${left ? `; ${left}` : ''}.`;
  return `${counted(group.size, 'image')} look alike; ${left || 'all have one label'}. One answer labels them all.`;
}
