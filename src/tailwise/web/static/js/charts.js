/** Small drawings of the dashboard: the learning curve with its band, bars of hours, and ranges of estimates. */
import { counted, h, percent } from './dom.js';

const SVG = 'http://www.w3.org/2000/svg';
const MARGIN = { top: 12, right: 14, bottom: 40, left: 46 };
const HEIGHT = 240;
const WIDEST_LABEL = 64; // pixels between two numbers below the axis

/** @typedef {{round: number, labels: number, value: number, low: number, high: number}} Point */

/** @param {string} tag @param {Record<string, string|number>} attributes @param {...(Node|string)} children */
export function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** What the curve shows, in a sentence. @param {Point[]} points */
export function curveText(points) {
  const [first, last] = [points[0], points[points.length - 1]];
  const now = `${percent(last.value)} of the guesses are right with ${counted(last.labels, 'label')} (between ${percent(last.low)} and ${percent(last.high)})`;
  return points.length < 2 ? `${now}.` : `${now}; with ${counted(first.labels, 'label')} it was ${percent(first.value)}.`;
}

/** The lowest mark of the axis of shares: a tenth below the band. @param {Point[]} points */
export const floorOf = (points) => Math.min(0.9, Math.floor(10 * Math.min(...points.map((point) => point.low))) / 10);

/** Numbers of points that fit below the axis, the last one always. @param {number[]} places pixels, ascending @param {number} apart */
export function fitting(places, apart = WIDEST_LABEL) {
  /** @type {number[]} */ const kept = [];
  for (let at = places.length - 1; at >= 0; at -= 1) {
    if (!kept.length || places[kept[0]] - places[at] >= apart) kept.unshift(at);
  }
  return kept;
}

/** The learning curve, drawn for a width. @param {Point[]} points @param {number} width */
export function curve(points, width) {
  const [least, most] = [points[0].labels, points[points.length - 1].labels];
  const bottom = floorOf(points);
  const x = (/** @type {number} */ labels) => MARGIN.left + (most > least ? (labels - least) / (most - least) : 0.5) * (width - MARGIN.left - MARGIN.right);
  const y = (/** @type {number} */ share) => MARGIN.top + ((1 - share) / (1 - bottom)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const svg = draw('svg', { class: 'curve', viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img', 'aria-label': curveText(points) });
  const steps = Math.round(10 * (1 - bottom)) > 5 ? 0.2 : 0.1;
  for (let share = 1; share >= bottom - 1e-9; share -= steps) {
    svg.append(
      draw('line', { class: 'rule', x1: MARGIN.left, x2: width - MARGIN.right, y1: y(share), y2: y(share) }),
      draw('text', { x: MARGIN.left - 8, y: y(share) + 4, 'text-anchor': 'end' }, percent(Math.max(0, share))));
  }
  const places = points.map((point) => x(point.labels));
  for (const at of fitting(places)) {
    const anchor = points.length === 1 ? 'middle' : at === points.length - 1 ? 'end' : places[at] - MARGIN.left < 24 ? 'start' : 'middle';
    svg.append(draw('text', { x: places[at], y: HEIGHT - MARGIN.bottom + 18, 'text-anchor': anchor }, points[at].labels.toLocaleString('en')));
  }
  svg.append(draw('text', { x: (MARGIN.left + width - MARGIN.right) / 2, y: HEIGHT - 4, 'text-anchor': 'middle' }, 'labels'));
  const path = (/** @type {('value'|'low'|'high')} */ name, list = points) => list.map((point) => `${x(point.labels).toFixed(1)},${y(point[name]).toFixed(1)}`).join(' ');
  svg.append(draw('polygon', { class: 'band', points: `${path('high')} ${path('low', [...points].reverse())}` }), draw('polyline', { class: 'line', points: path('value') }));
  for (const point of points) {
    svg.append(draw('circle', { class: 'dot', cx: x(point.labels), cy: y(point.value), r: 4 }, draw('title', {}, `Round ${point.round}: ${percent(point.value)} with ${counted(point.labels, 'label')}`)));
  }
  return svg;
}

/** Answers per hour as thin bars. @param {number[]} hours @param {number} most @param {string} says */
export function sparkline(hours, most, says) {
  const [wide, high] = [4, 32];
  const svg = draw('svg', { class: 'spark', viewBox: `0 0 ${wide * hours.length} ${high}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': says });
  svg.append(draw('line', { class: 'rule', x1: 0, x2: wide * hours.length, y1: high - 0.5, y2: high - 0.5 }));
  hours.forEach((count, at) => {
    const tall = count ? Math.max(2, (count / most) * (high - 1)) : 0;
    if (count) svg.append(draw('rect', { x: at * wide + 0.5, y: high - tall, width: wide - 1, height: tall }));
  });
  return svg;
}

/** An estimate between its limits, on a track from 0 to `most`. @param {{value: number|null, low: number, high: number}} estimate @param {number} most */
export function range(estimate, most = 1) {
  const [span, dot] = [h('span', { class: 'span' }), h('span', { class: 'point' })];
  span.style.insetInlineStart = `${(100 * estimate.low) / most}%`;
  span.style.width = `${(100 * Math.max(0, Math.min(most, estimate.high) - estimate.low)) / most}%`;
  dot.style.insetInlineStart = `${(100 * (estimate.value ?? 0)) / most}%`;
  return h('span', { class: 'range', 'aria-hidden': 'true' }, ...(estimate.value === null ? [] : [span, dot]));
}
