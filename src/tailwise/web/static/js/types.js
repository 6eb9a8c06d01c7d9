/**
 * The shapes that travel between the server, the store and the views. Types only: nothing runs here.
 *
 * @typedef {{id: number, name: string, retired: boolean, hotkey?: string|null}} Klass   hotkey: its own key, in addition to the digit of its place
 * @typedef {{class_id: number, confidence: number}} Guess
 * @typedef {{class_id: number, confidence: number, top?: Guess[]}} Prelabel
 * @typedef {{key: string, seal?: string, width?: number, height?: number, prelabel?: Prelabel|null, rank?: number}} Picture
 *
 * @typedef {'label'|'other'|'skip'} Kind
 * @typedef {{key: string, kind: Kind, class_id: number|null, saved: boolean, turn: number}} Answer
 *   one answer to one image; `key` is its idempotency key, `turn` its place in the order of work
 * @typedef {Picture & {answers: Answer[]}} Item        an image on the timeline; the last answer stands
 * @typedef {{items: Item[], cursor: number, turn: number}} Timeline
 *
 * @typedef {'answer'|'undo'|'settle'|'note'} OpType   note: a flag or a comment
 * @typedef {{seq?: number, type: OpType, key: string, annotator: string, tab: string, image: string,
 *   seal?: string, kind?: string, class_id?: number|null, undoes?: string|null, seconds?: number, at?: number, text?: string, found_by?: string}} Op
 *   what waits in the outbox
 * @typedef {{op: Op, message: string}} Refusal         an operation that the server will never take
 *
 * @typedef {{id: number, budget: number, answered: number, skipped: number, remaining: number, complete: boolean, mine?: number, rough?: boolean}} Round
 * @typedef {{class_id: number, labelled: number, round_labelled: number, expected: number|null, target: number|null}} Share
 * @typedef {{state: 'idle'|'running'|'done'|'failed', share?: number|null, what?: string, error?: string|null}} Job
 * @typedef {{campaign: {id: string, name: string}, classes: Klass[], classes_version: number, round: Round|null, balance: Share[],
 *   settings: {overlap: number, blind: boolean, plain_features?: boolean}, job: Job, annotators: string[], conflicts: number, role: 'owner'|'annotator',
 *   images: {usable: number}, next: {budget: number, left: number, skipped: number}|null}} ServerState
 */
export {};
