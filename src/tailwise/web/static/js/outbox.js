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
 * What to send next: the leading run of answers of one person, or one undo, or one settlement. The order is kept.
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
  const [{ type, annotator, key, image, kind, class_id, undoes }] = batch;
  if (type === 'undo') return ['/api/undo', { annotator, key, ...(undoes ? { undoes } : {}) }];
  const klass = (/** @type {number|null|undefined} */ id) => (id === null || id === undefined ? {} : { class_id: id });
  if (type === 'settle') return ['/api/settle', { annotator, key, image, kind, ...klass(class_id) }];
  const answers = batch.map((op) => ({ key: op.key, image: op.image, seal: op.seal || undefined, kind: op.kind, seconds: op.seconds, at: op.at, ...klass(op.class_id) }));
  return ['/api/answers', { annotator, answers }];
}

/**
 * @param {object} needs
 * @param {Disk} needs.disk
 * @param {Post} needs.post
 * @param {string} needs.tab                      this tab's name: a tab sends its own operations, in their order
 * @param {(ops: Op[]) => void} needs.saved       told after the commit
 * @param {(refusals: Refusal[]) => void} needs.refused
 * @param {(waiting: number, trouble: Error|null) => void} needs.changed
 */
export function makeOutbox({ disk, post, tab, saved, refused, changed }) {
  let coming = 0; // operations on their way to the disk: from the first moment they are not saved yet
  let kept = 0; // operations that are known to be on the disk
  let running = false;
  let again = false;
  let wait = FIRST_WAIT;
  /** @type {ReturnType<typeof setTimeout>|undefined} */ let timer;

  const own = async () => (await disk.all()).filter((op) => op.tab === tab);
  /** @param {number} count on the disk @param {Error|null} [trouble] */
  function tell(count, trouble = null) {
    kept = count;
    changed(kept + coming, trouble);
  }

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
    await disk.remove(ops);
    saved(ops);
  }

  /** @param {Refusal[]} refusals */
  async function refuse(refusals) {
    await disk.refuse(refusals);
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
          tell(ops.length);
          await send(nextBatch(ops));
          wait = FIRST_WAIT;
        }
      }
      tell(0);
    } catch (trouble) {
      tell((await own()).length, /** @type {Error} */ (trouble));
      timer = setTimeout(flush, wait);
      wait = Math.min(2 * wait, LONGEST_WAIT);
    } finally {
      running = false;
    }
  }

  return {
    flush,
    waiting: own,

    /** Returns when the operations are on disk; they are sent in the background. @param {Op[]} ops */
    async add(ops) {
      coming += ops.length;
      tell(kept);
      await disk.add(ops).finally(() => (coming -= ops.length));
      void flush();
    },

    /** Take over what tabs that are no more have left behind. @param {Set<string>} living */
    async adopt(living) {
      const orphans = (await disk.all()).filter((op) => op.tab !== tab && !living.has(op.tab));
      if (orphans.length) await disk.hand(orphans, tab);
      void flush();
      return orphans;
    },

    /** Whether there are operations of other tabs, living or not. */
    strays: async () => (await disk.all()).some((op) => op.tab !== tab),

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
