/** What a point's colour means: by class, by the model's guess, by round or by how sure the model is. Pure functions. */
import { OTHER, UNSURE } from './map_points.js';

/** @typedef {import('./map_points.js').Points} Points */
/** @typedef {'class'|'guess'|'round'|'certainty'} Mode */
/** @typedef {{name: string, colour: string, count: number}} Entry   of the legend; the first is for points without a value */
/** @typedef {{category: Uint16Array, entries: Entry[]}} Colouring */

const GREY = { light: '#b1b9c4', dark: '#4d5763' };
const INK = { light: '#1b222b', dark: '#e9ecf0' };
const ROUNDS = { light: ['#2fa36b', '#21918c', '#3b528b', '#440154'], dark: ['#5b6fd6', '#2f9fb0', '#5ec962', '#fde725'] };
const SURE = { light: ['#b35806', '#c9701f', '#7f8598', '#4a7ab0', '#1f4e99'], dark: ['#ff9f45', '#e0b187', '#aab2c8', '#7fb0ee', '#4f8cff'] };
const BANDS = 5;

/** @type {Record<Mode, string>} */
export const MODES = { class: 'Class', guess: 'Model’s guess', round: 'Round', certainty: 'Certainty' };

/**
 * @param {Points} points @param {Mode} mode @param {'light'|'dark'} theme @param {(id: number) => string} nameOf of a class
 * @returns {Colouring}
 */
export function colouring(points, mode, theme, nameOf) {
  if (mode === 'round') return byRound(points, theme);
  if (mode === 'certainty') return byCertainty(points, theme);
  const { classes, colours } = points.header;
  const others = classes.length + 1;
  const values = mode === 'class' ? points.klass : points.guess;
  const category = values.map((value) => (value === OTHER ? others : value));
  const names = [mode === 'class' ? 'Not labelled' : 'No guess', ...classes.map(nameOf), 'Other'];
  return withCounts(category, names, [GREY[theme], ...colours[theme], INK[theme]]);
}

/** @param {Points} points @param {'light'|'dark'} theme @returns {Colouring} */
function byRound({ round }, theme) {
  const known = [...new Set(round)].filter(Boolean).sort((one, other) => one - other);
  const places = new Map(known.map((number, at) => [number, at + 1]));
  const category = round.map((number) => places.get(number) ?? 0);
  const colours = known.map((_, at) => mixed(ROUNDS[theme], known.length > 1 ? at / (known.length - 1) : 1));
  return withCounts(category, ['Not chosen yet', ...known.map((number) => `Round ${number}`)], [GREY[theme], ...colours]);
}

/** @param {Points} points @param {'light'|'dark'} theme @returns {Colouring} */
function byCertainty({ certainty }, theme) {
  const band = (/** @type {number} */ value) => (value === UNSURE ? 0 : 1 + Math.min(BANDS - 1, Math.floor((value * BANDS) / UNSURE)));
  const names = Array.from({ length: BANDS }, (_, at) => `${(100 * at) / BANDS} to ${(100 * (at + 1)) / BANDS}\u202f%`);
  return withCounts(Uint16Array.from(certainty, band), ['Not known', ...names], [GREY[theme], ...SURE[theme]]);
}

/** @param {Uint16Array} category @param {string[]} names @param {string[]} colours @returns {Colouring} */
function withCounts(category, names, colours) {
  const counts = new Uint32Array(names.length);
  for (const one of category) counts[one] += 1;
  return { category, entries: names.map((name, at) => ({ name, colour: colours[at], count: counts[at] })) };
}

/** A colour between anchors. @param {string[]} anchors @param {number} share 0 … 1 */
export function mixed(anchors, share) {
  const place = share * (anchors.length - 1);
  const at = Math.min(anchors.length - 2, Math.floor(place));
  const part = (/** @type {string} */ hex, /** @type {number} */ from) => parseInt(hex.slice(from, from + 2), 16);
  const mix = (/** @type {number} */ from) => Math.round(part(anchors[at], from) + (place - at) * (part(anchors[at + 1], from) - part(anchors[at], from)));
  return `#${[1, 3, 5].map((from) => mix(from).toString(16).padStart(2, '0')).join('')}`;
}
