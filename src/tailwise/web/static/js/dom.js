/** Making elements. Text goes in as text, never as markup: a class name with tags in it is shown, not obeyed. */

const SVG = 'http://www.w3.org/2000/svg';

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element #${id}`);
  return found;
}

/**
 * An element with properties and children; strings become text nodes.
 * `class`, `data-…`, `aria-…`, `role`, `for`, `dir` are attributes, `on…` are listeners, the rest are properties.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node|string|number|null|undefined|false)} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) put(element, name, value);
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** @param {HTMLElement} element @param {string} name @param {any} value */
function put(element, name, value) {
  if (value === null || value === undefined) return;
  if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
  else if (/^(class|role|for|dir|list)$|-/.test(name)) element.setAttribute(name, String(value));
  else Reflect.set(element, name, value);
}

/** An icon of the sprite in index.html. @param {string} name */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', `#i-${name}`);
  svg.setAttribute('aria-hidden', 'true');
  svg.append(use);
  return svg;
}

/** A class name or a person's name in its own direction: it wraps, or is shown shorter and whole in the tooltip. @param {string} name @param {string} [short] */
export function nameTag(name, short = name) {
  return h('span', { class: 'name', dir: 'auto', title: name }, short);
}

/** @param {string} text the key to show, e.g. "⇧1" @param {string} [says] */
export function keycap(text, says) {
  return h('kbd', { class: 'cap', ...(says ? { 'aria-label': says } : { 'aria-hidden': 'true' }) }, text);
}

/** @param {number} share @returns {string} e.g. "92 %" */
export function percent(share) {
  return `${Math.round(100 * share)}\u202f%`;
}

/** A module, when the style of its view is there too. @template M @param {string} name @param {Promise<M>} module @returns {Promise<M>} */
export async function styled(name, module) {
  if (!document.querySelector(`link[href$="/css/${name}.css"]`)) {
    const link = /** @type {HTMLLinkElement} */ (h('link', { rel: 'stylesheet', href: new URL(`../css/${name}.css`, import.meta.url).href }));
    const loaded = new Promise((resolve) => (link.onload = link.onerror = resolve));
    document.head.append(link);
    await loaded;
  }
  return module;
}

/** Say something to screen readers. @param {string} text */
export function speak(text) {
  byId('spoken').textContent = text;
}

/** @param {number} count @param {string} one @param {string} [many] */
export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}
