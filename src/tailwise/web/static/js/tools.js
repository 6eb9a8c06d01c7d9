/** The row of tools under the image: each with its key, its name for screen readers, and whether it is on. */
import { byId, h, icon, keycap } from './dom.js';
import { isBlind, store } from './state.js';

/**
 * @typedef {{icon: string, text: string, cap: string, title: string, act: () => void, wide?: boolean}} Tool
 * @param {Record<'left'|'right'|'undo'|'skip'|'other'|'zoom'|'adjust'|'blind', () => void>} acts
 */
export function makeTools(acts) {
  const tools = byId('tools');
  /** @type {Record<string, Tool>} */
  const all = {
    left: { icon: 'left', text: 'Back', cap: '←', title: 'The image before', act: acts.left },
    undo: { icon: 'undo', text: 'Undo', cap: 'u', title: 'Take the last answer back', act: acts.undo },
    skip: { icon: 'skip', text: 'Skip', cap: 's', title: 'Leave this image to others', act: acts.skip, wide: true },
    other: { icon: 'other', text: 'Other', cap: 'o', title: 'None of the classes', act: acts.other, wide: true },
    zoom: { icon: 'zoom', text: 'Zoom', cap: 'z', title: 'Look closer (also the wheel or two fingers)', act: acts.zoom },
    adjust: { icon: 'sun', text: 'Adjust', cap: 'v', title: 'Brightness and contrast', act: acts.adjust },
    blind: { icon: 'eye', text: 'Hide suggestions', cap: 'b', title: 'Hide what the model thinks', act: acts.blind },
    right: { icon: 'right', text: 'Forward', cap: '→', title: 'The next image', act: acts.right },
  };
  const buttons = Object.fromEntries(Object.entries(all).map(([name, tool]) => [name, button(name, tool)]));
  tools.append(...Object.values(buttons));

  buttons.zoom.setAttribute('aria-pressed', 'false');
  store.watch((state) => [isBlind(state), state.server?.settings?.blind], (state) => {
    const blind = isBlind(state);
    const text = blind ? 'Show suggestions' : 'Hide suggestions';
    buttons.blind.querySelector('.tool-text')?.replaceChildren(...toolText(text));
    buttons.blind.setAttribute('aria-label', text);
    buttons.blind.title = `${text} of the model (b)`;
    buttons.blind.toggleAttribute('disabled', Boolean(state.server?.settings?.blind)); // decided by the campaign
    buttons.blind.querySelector('use')?.setAttribute('href', blind ? '#i-blind' : '#i-eye');
  });
  store.watch((state) => [state.line], ({ line }) => {
    buttons.left.toggleAttribute('disabled', line.cursor <= 0);
    buttons.right.toggleAttribute('disabled', line.cursor >= line.items.length - 1);
    buttons.undo.toggleAttribute('disabled', !line.items.some((item) => item.answers.length));
  });
  return {
    zoomChanged: (/** @type {boolean} */ zoomed) => buttons.zoom.setAttribute('aria-pressed', String(zoomed)),
    adjustChanged: (/** @type {boolean} */ adjusted) => buttons.adjust.setAttribute('aria-pressed', String(adjusted)),
  };
}

/** The first word, and the rest where there is space for it. @param {string} text */
function toolText(text) {
  const [first, ...rest] = text.split(' ');
  return rest.length ? [`${first} `, h('span', { class: 'tool-more' }, rest.join(' '))] : [first];
}

/** @param {string} name @param {Tool} tool */
function button(name, tool) {
  return h('button', { class: `tool tool-${name}`, type: 'button', title: `${tool.title} (${tool.cap})`, 'aria-label': tool.text, 'data-tool': name,
    onclick: tool.act }, icon(tool.icon), h('span', { class: 'tool-text' }, ...toolText(tool.text)), keycap(tool.cap));
}
