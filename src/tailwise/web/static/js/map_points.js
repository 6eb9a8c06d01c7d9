/** The points of the map: the server's bytes in, typed arrays out; the point nearest to a place, the points in a lasso. */

export const OTHER = 65_535; // a class: none of the classes
export const UNSURE = 255; // a certainty: not known
const MOST = 65_535; // of a coordinate
const CELLS = 256; // of the index, in a row

/**
 * @typedef {object} Points
 * @property {number} count
 * @property {{method: string, backbone: string, missing: number, guesses: 'none'|'blind'|'waiting'|'ready', classes: number[],
 *   colours: {light: string[], dark: string[]}}} header
 * @property {Float32Array} x            0 … 1
 * @property {Float32Array} y            0 … 1, upwards
 * @property {Uint16Array} klass         places in header.classes from 1; 0: none, OTHER
 * @property {Uint16Array} guess         the same
 * @property {Uint16Array} round         0: not chosen yet
 * @property {Uint8Array} certainty      0 … 254; UNSURE
 * @property {(at: number) => string} key
 */

/** See web/map.py for the order of the bytes. @param {ArrayBuffer} bytes @returns {Points} */
export function readPoints(bytes) {
  const length = new DataView(bytes).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
  const count = header.points;
  let at = 4 + length;
  const keys = new Uint8Array(bytes, at, 8 * count);
  at += 8 * count;
  const words = () => {
    const array = new Uint16Array(bytes, at, count);
    at += 2 * count;
    return array;
  };
  const [x, y, klass, guess, round] = [words(), words(), words(), words(), words()];
  return {
    count, header, x: shares(x), y: shares(y), klass, guess, round, certainty: new Uint8Array(bytes, at, count),
    key: (place) => [...keys.subarray(8 * place, 8 * place + 8)].map((one) => one.toString(16).padStart(2, '0')).join(''),
  };
}

/** @param {Uint16Array} whole */
function shares(whole) {
  const result = new Float32Array(whole.length);
  for (let at = 0; at < whole.length; at += 1) result[at] = whole[at] / MOST;
  return result;
}

/** @typedef {{starts: Uint32Array, order: Uint32Array}} Index  the points of each cell lie together in `order` */

/** @param {Points} points @returns {Index} */
export function makeIndex({ count, x, y }) {
  const starts = new Uint32Array(CELLS * CELLS + 1);
  const cells = new Uint32Array(count);
  for (let at = 0; at < count; at += 1) {
    cells[at] = cellOf(y[at]) * CELLS + cellOf(x[at]);
    starts[cells[at] + 1] += 1;
  }
  for (let cell = 0; cell < CELLS * CELLS; cell += 1) starts[cell + 1] += starts[cell];
  const next = starts.slice();
  const order = new Uint32Array(count);
  for (let at = 0; at < count; at += 1) {
    order[next[cells[at]]] = at;
    next[cells[at]] += 1;
  }
  return { starts, order };
}

/** @param {number} value */
function cellOf(value) {
  return Math.max(0, Math.min(CELLS - 1, Math.floor(value * CELLS)));
}

/**
 * The point nearest to a place, at most `reach` away; -1 without one.
 * @param {Points} points @param {Index} index @param {number} px @param {number} py @param {number} reach @param {Uint8Array} hidden 1 where a point is not shown
 */
export function nearest({ x, y }, { starts, order }, px, py, reach, hidden) {
  let best = -1;
  let least = reach * reach;
  for (let row = cellOf(py - reach); row <= cellOf(py + reach); row += 1) {
    const end = starts[row * CELLS + cellOf(px + reach) + 1];
    for (let place = starts[row * CELLS + cellOf(px - reach)]; place < end; place += 1) {
      const at = order[place];
      const apart = (x[at] - px) ** 2 + (y[at] - py) ** 2;
      if (apart <= least && !hidden[at]) {
        if (apart === least && best >= 0 && at > best) continue; // of equal ones the first
        best = at;
        least = apart;
      }
    }
  }
  return best;
}

/**
 * The shown points inside a polygon, by the even-odd rule.
 * @param {Points} points @param {[number, number][]} corners in the map's coordinates @param {Uint8Array} hidden @returns {Uint32Array}
 */
export function inside({ count, x, y }, corners, hidden) {
  const xs = corners.map(([one]) => one);
  const ys = corners.map(([, one]) => one);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const found = [];
  for (let at = 0; at < count; at += 1) {
    const px = x[at];
    const py = y[at];
    if (hidden[at] || px < left || px > right || py < low || py > high) continue;
    let odd = false;
    for (let one = 0, other = xs.length - 1; one < xs.length; other = one, one += 1) {
      if (ys[one] > py !== ys[other] > py && px < ((xs[other] - xs[one]) * (py - ys[one])) / (ys[other] - ys[one]) + xs[one]) odd = !odd;
    }
    if (odd) found.push(at);
  }
  return Uint32Array.from(found);
}
