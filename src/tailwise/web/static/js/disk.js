/** The outbox's disk: IndexedDB, one database per campaign; memory where the browser allows none. */

/** @typedef {import('./types.js').Op} Op @typedef {import('./types.js').Refusal} Refusal */

/**
 * @typedef {object} Disk
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

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** @param {IDBTransaction} transaction @returns {Promise<void>} */
function finished(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}

/** @param {string} campaign @returns {Promise<Disk>} */
export async function openDisk(campaign) {
  try {
    const request = indexedDB.open(`tailwise-${campaign}`, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('ops', { keyPath: 'seq', autoIncrement: true });
      request.result.createObjectStore('refused', { autoIncrement: true });
    };
    const database = await result(request);
    database.onversionchange = () => database.close();
    return indexedDisk(database);
  } catch {
    return memoryDisk(); // private windows of some browsers have no IndexedDB
  }
}

/** @param {IDBDatabase} database @returns {Disk} */
function indexedDisk(database) {
  /** @param {string[]} stores @param {(transaction: IDBTransaction) => void} work */
  const write = (stores, work) => {
    // strict: "kept in this browser" must also be true after a power cut
    const transaction = database.transaction(stores, 'readwrite', { durability: 'strict' });
    work(transaction);
    return finished(transaction);
  };
  /** @param {string} store */
  const read = (store) => result(database.transaction(store).objectStore(store).getAll());
  return {
    lasting: true,
    add: (ops) => write(['ops'], (t) => ops.forEach((op) => t.objectStore('ops').add(op))),
    all: () => read('ops'),
    remove: (ops) => write(['ops'], (t) => ops.forEach((op) => t.objectStore('ops').delete(Number(op.seq)))),
    hand: (ops, tab) => write(['ops'], (t) => ops.forEach((op) => t.objectStore('ops').put({ ...op, tab }))),
    refuse: (refusals) =>
      write(['ops', 'refused'], (t) =>
        refusals.forEach((refusal) => {
          t.objectStore('ops').delete(Number(refusal.op.seq));
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
