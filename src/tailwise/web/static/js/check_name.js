/** Whether a name can be used: it must be seen, and must not turn the text around it. */

const LONGEST = 60;
// Letters that cannot be seen, or that turn the text around them.
const UNSHOWN = /[\p{Cc}\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/u;

/** The name as it will be used, or what is wrong with it. @param {string} typed @returns {{name: string}|{fault: string}} */
export function checkName(typed) {
  const name = typed.normalize('NFC').trim().replace(/\s+/g, ' ');
  if (!name) return { fault: 'Please type a name.' };
  if ([...name].length > LONGEST) return { fault: `Please use at most ${LONGEST} letters.` };
  return UNSHOWN.test(name) ? { fault: 'The name has letters that cannot be shown.' } : { name };
}
