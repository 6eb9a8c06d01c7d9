/**
 * The outbox: every answer is first written to the browser's disk, then sent until the server says that it is committed.
 * Each operation carries a key under which the server takes it once, so that sending it again does no harm.
 */
import { Away, Refused } from './api.js';

/** @typedef {import('./types.js').Op} Op @typedef {import('./types.js').Refusal} Refusal */
/** @typedef {import('./disk.js').Disk} Disk */
/** @typedef {(path: string, body: object, options?: RequestInit) => Promise<any>} Post */

const MOST = 100; // answers in one request
const FIRST_WAIT = 400; // ms until the second attempt; doubled each time
const LONGEST_WAIT = 8_000;

/**
 * What to send next: the leading run of answers of one person, or one undo, settlement or note. The order is kept.
 * @param {Op[]} ops
 */
export function nextBatch(ops) {
  const [first] = ops;
  if (!first || first.type !== 'answer') return ops.slice(0, 1);
  const end = ops.findIndex((op) => op.type !== 'answer' || op.annotator !== first.annotator);
  return ops.slice(0, Math.min(end < 0 ? ops.length : end, MOST));
}

/** The request for a batch. @param {Op[]} batch @returns {[string, object]} */
export function requestFor(batch) {
  const [{ type, annotator, key, image, kind, class_id, undoes, text, found_by }] = batch;
  if (type === 'undo') return ['/api/undo', { annotator, key, ...(undoes ? { undoes } : {}) }];
  if (type === 'note') return ['/api/note', { annotator, key, image, kind, ...(text ? { text } : {}) }];
  const klass = (/** @type {number|null|undefined} */ id) => (id === null || id === undefined ? {} : { class_id: id });
  if (type === 'settle') return ['/api/settle', { annotator, key, image, kind, ...klass(class_id), ...(found_by ? { found_by } : {}) }];
  const answers = batch.map((op) => ({ key: op.key, image: op.image, seal: op.seal || undefined, kind: op.kind, seconds: op.seconds, at: op.at, ...klass(op.class_id) }));
  return ['/api/answers', { annotator, answers }];
}

/**
 * @param {object} needs
 * @param {Disk} needs.disk
 * @param {Post} needs.post
 * @param {string} needs.tab                      this tab's name: a tab sends its own operations, in their order
 * @param {(ops: Op[]) => void} needs.saved       called after the commit
 * @param {(refusals: Refusal[]) => void} needs.refused
 * @param {(waiting: number, trouble: Error|null, unkept: number) => void} needs.changed   unkept: how many of them the disk has not taken
 */
export function makeOutbox({ disk, post, tab, saved, refused, changed }) {
  let coming = 0; // operations on their way to the disk: from the first moment they are not saved yet
  let kept = 0; // operations that are known to be on the disk
  /** @type {Op[]} */ let unkept = []; // operations that the disk did not take: sent all the same
  /** @type {Set<string>} */ const over = new Set(); // keys that are committed, and that the disk has not let go of
  let running = false;
  let again = false;
  let wait = FIRST_WAIT;
  /** @type {ReturnType<typeof setTimeout>|undefined} */ let timer;

  /** This tab's operations that wait; where the disk cannot be read, those that it did not take. @returns {Promise<Op[]>} */
  async function own() {
    try {
      const ops = (await disk.all()).filter((op) => op.tab === tab && !over.has(op.key));
      drop(ops); // what the disk has taken after all
      kept = ops.length;
      return unkept.length ? [...ops, ...unkept].sort((a, b) => (a.at ?? 0) - (b.at ?? 0)) : ops;
    } catch (trouble) {
      if (unkept.length) return [...unkept];
      throw trouble;
    }
  }

  /** Of all tabs. */
  const stored = () => disk.all().catch(() => /** @type {Op[]} */ ([])); // a fault of the disk passes, or it is noticed when something is added

  /** @param {Error|null} [trouble] */
  const report = (trouble = null) => changed(kept + unkept.length + coming, trouble, unkept.length);
  /** @param {Op[]} ops that are kept or concluded */
  const drop = (ops) => (unkept = unkept.filter((op) => !ops.some((other) => other.key === op.key)));

  /** @param {Op[]} batch */
  async function send(batch) {
    try {
      const [path, body] = requestFor(batch);
      const reply = await post(path, body);
      await conclude(batch, reply);
    } catch (trouble) {
      if (!(trouble instanceof Refused) || trouble.passing || trouble.denied) throw trouble;
      if (batch.length > 1) for (const op of batch) await send([op]); // find the one that is refused
      else await refuse([{ op: batch[0], message: trouble.message }]);
    }
  }

  /** @param {Op[]} batch @param {any} reply */
  async function conclude(batch, reply) {
    if (batch[0].type !== 'answer') return done(batch);
    const byKey = new Map((reply.results ?? []).map((/** @type {any} */ one) => [one.key, one]));
    const taken = batch.filter((op) => byKey.get(op.key)?.saved === true);
    const turned = batch.filter((op) => byKey.get(op.key)?.saved === false && byKey.get(op.key).error?.code !== 'busy');
    if (taken.length) await done(taken);
    if (turned.length) await refuse(turned.map((op) => ({ op, message: String(byKey.get(op.key).error?.message ?? 'refused') })));
    if (taken.length + turned.length < batch.length) throw new Away('the server was busy');
  }

  /** @param {Op[]} ops */
  async function done(ops) {
    drop(ops);
    if (ops.some((op) => op.seq)) await disk.remove(ops).catch(() => ops.forEach((op) => over.add(op.key))); // the next page sends them again, under the same keys
    saved(ops);
  }

  /** @param {Refusal[]} refusals */
  async function refuse(refusals) {
    await disk.refuse(refusals);
    drop(refusals.map(({ op }) => op));
    refused(refusals);
  }

  async function flush() {
    again = true;
    if (running) return;
    running = true;
    clearTimeout(timer);
    try {
      while (again) {
        again = false;
        for (let ops = await own(); ops.length; ops = await own()) {
          report();
          await send(nextBatch(ops));
          wait = FIRST_WAIT;
        }
      }
      report();
    } catch (trouble) {
      await own().catch(() => {}); // some may have been taken
      timer = setTimeout(flush, wait);
      wait = Math.min(2 * wait, LONGEST_WAIT);
      report(/** @type {Error} */ (trouble));
    } finally {
      running = false;
    }
  }

  return {
    flush,
    waiting: () => own().catch(() => /** @type {Op[]} */ ([])),

    /** Images that wait with an answer of one person, in any tab. @param {string} annotator */
    async answersOf(annotator) {
      const ops = [...(await stored()), ...unkept];
      return new Set(ops.filter((op) => op.type === 'answer' && op.annotator === annotator).map((op) => op.image));
    },

    /** Returns when the operations are on disk, or the disk has failed; they are sent in the background. @param {Op[]} ops */
    async add(ops) {
      coming += ops.length;
      report();
      try {
        await disk.add(ops);
      } catch {
        unkept.push(...ops);
      } finally {
        coming -= ops.length;
      }
      void flush();
    },

    /** Take over what closed tabs have left behind. @param {Set<string>} living */
    async adopt(living) {
      const orphans = (await stored()).filter((op) => op.tab !== tab && !living.has(op.tab));
      if (orphans.length) await disk.hand(orphans, tab).catch(() => {}); // tried again with the next roll call
      void flush();
      return orphans;
    },

    /** Whether there are operations of other tabs, living or not. */
    strays: async () => (await stored()).some((op) => op.tab !== tab),

    refusals: () => disk.refused(),
    /** Forget what somebody has seen refused; what was refused since then stays. @param {Refusal[]} seen */
    forget: (seen) => disk.forget(new Set(seen.map(({ op }) => op.key))),

    /** Offer all that was refused once more, under the same keys. */
    async retry() {
      await disk.requeue(tab);
      void flush();
    },
  };
}
