/** The outbox's disk: IndexedDB, one database per campaign; memory where the browser allows none. */

/** @typedef {import('./types.js').Op} Op @typedef {import('./types.js').Refusal} Refusal */

/**
 * @typedef {object} Disk
 * Every promise settles; a fault of the disk is a DOMException.
 * @property {boolean} lasting                           whether it survives a reload
 * @property {(ops: Op[]) => Promise<void>} add          returns when the operations are on disk
 * @property {() => Promise<Op[]>} all                   in the order in which they were added
 * @property {(ops: Op[]) => Promise<void>} remove
 * @property {(ops: Op[], tab: string) => Promise<void>} hand   give operations to another tab
 * @property {(refusals: Refusal[]) => Promise<void>} refuse    move operations to the refused ones, in one step
 * @property {() => Promise<Refusal[]>} refused
 * @property {(tab: string) => Promise<void>} requeue     move all that was refused back to the operations of a tab, in one step
 * @property {(keys: Set<string>) => Promise<void>} forget      forget refused operations by their keys, and no others
 */

const PATIENCE = 5_000; // ms; a transaction of another tab that never ends must not stop this one from saving
const OPENING = 30_000; // ms; without a database nothing survives a reload, so that it is worth waiting for

/** Settles in any case. @template T @param {(resolve: (value: T) => void, reject: (error: unknown) => void) => void} start @param {number} [patience] @returns {Promise<T>} */
function inTime(start, patience = PATIENCE) {
  /** @type {ReturnType<typeof setTimeout>|undefined} */ let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new DOMException(`IndexedDB has not answered for ${patience / 1000} s`, 'TimeoutError')), patience);
  });
  return Promise.race([new Promise(start), /** @type {Promise<never>} */ (late)]).finally(() => clearTimeout(timer));
}

/** @template T @param {IDBRequest<T>} request @param {number} [patience] @returns {Promise<T>} */
function result(request, patience) {
  return inTime((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  }, patience);
}

/** @param {IDBTransaction} transaction @returns {Promise<void>} */
function finished(transaction) {
  return inTime((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new DOMException('IndexedDB was closed', 'AbortError'));
  });
}

/** @param {string} name @returns {Promise<IDBDatabase>} */
async function connect(name) {
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore('ops', { keyPath: 'seq', autoIncrement: true });
    request.result.createObjectStore('refused', { autoIncrement: true });
  };
  const database = await result(request, OPENING);
  database.onversionchange = () => database.close();
  return database;
}

/** @param {string} campaign @returns {Promise<Disk>} */
export async function openDisk(campaign) {
  const name = `tailwise-${campaign}`;
  try {
    const disk = indexedDisk(await connect(name), () => connect(name));
    await disk.all();
    return disk;
  } catch {
    return memoryDisk(); // private windows of some browsers have no IndexedDB, or one that cannot be read
  }
}

/** @param {IDBDatabase} database @param {() => Promise<IDBDatabase>} reconnect @returns {Disk} */
function indexedDisk(database, reconnect) {
  /** Browsers close a connection when site data are cleared, or when their storage process crashes. @template T @param {() => Promise<T>} work */
  async function connected(work) {
    try {
      return await work();
    } catch (trouble) {
      if (!(trouble instanceof DOMException) || trouble.name !== 'InvalidStateError') throw trouble;
      database = await reconnect();
      return work();
    }
  }
  /** @param {string[]} stores @param {(transaction: IDBTransaction) => void} work @returns {Promise<void>} */
  const write = (stores, work) =>
    connected(async () => {
      // strict: "kept in this browser" must also be true after a power cut
      const transaction = database.transaction(stores, 'readwrite', { durability: 'strict' });
      work(transaction);
      return finished(transaction);
    });
  /** @param {string} store */
  const read = (store) => connected(async () => result(database.transaction(store).objectStore(store).getAll()));
  return {
    lasting: true,
    add: (ops) => write(['ops'], (t) => ops.forEach((op) => t.objectStore('ops').add(op))),
    all: () => read('ops'),
    remove: (ops) => write(['ops'], (t) => ops.forEach((op) => op.seq && t.objectStore('ops').delete(op.seq))),
    hand: (ops, tab) => write(['ops'], (t) => ops.forEach((op) => t.objectStore('ops').put({ ...op, tab }))),
    refuse: (refusals) =>
      write(['ops', 'refused'], (t) =>
        refusals.forEach((refusal) => {
          if (refusal.op.seq) t.objectStore('ops').delete(refusal.op.seq); // none: the disk did not take it before
          t.objectStore('refused').add(refusal);
        }),
      ),
    refused: () => read('refused'),
    requeue: (tab) =>
      write(['ops', 'refused'], (t) =>
        eachRefused(t, ({ op: { seq, ...op } }, cursor) => {
          t.objectStore('ops').add({ ...op, tab });
          cursor.delete();
        }),
      ),
    forget: (keys) => write(['refused'], (t) => eachRefused(t, ({ op }, cursor) => keys.has(op.key) && cursor.delete())),
  };
}

/** Within its transaction, so that nothing can come in between. @param {IDBTransaction} transaction @param {(refusal: Refusal, cursor: IDBCursorWithValue) => void} work */
function eachRefused(transaction, work) {
  const request = transaction.objectStore('refused').openCursor();
  request.onsuccess = () => {
    if (!request.result) return;
    work(request.result.value, request.result);
    request.result.continue();
  };
}

/** @returns {Disk} */
function memoryDisk() {
  let last = 0;
  /** @type {Op[]} */ let ops = [];
  /** @type {Refusal[]} */ let refused = [];
  /** @param {Op[]} gone */
  const without = (gone) => ops.filter((op) => !gone.some((other) => other.seq === op.seq));
  /** @param {Op[]} more */
  const add = (more) => more.forEach((op) => ops.push({ ...op, seq: ++last }));
  return {
    lasting: false,
    add: async (more) => add(more),
    all: async () => [...ops],
    remove: async (gone) => void (ops = without(gone)),
    hand: async () => {},
    refuse: async (more) => {
      ops = without(more.map((refusal) => refusal.op));
      refused.push(...more);
    },
    refused: async () => [...refused],
    requeue: async (tab) => {
      add(refused.map(({ op }) => ({ ...op, tab })));
      refused = [];
    },
    forget: async (keys) => void (refused = refused.filter(({ op }) => !keys.has(op.key))),
  };
}
