// Elements made of text, never of markup: what comes out of a file stays text.
const SVG = 'http://www.w3.org/2000/svg';
const byId = (id) => document.getElementById(id);
const DATA = JSON.parse(byId('data').textContent);

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const el = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

const percent = (value) => `${value.toFixed(1)}\u00a0%`;
function signed(value) {
  const text = Math.abs(value).toFixed(2);
  if (Number(text) === 0) return text;
  return (value < 0 ? '\u2212' : '+') + text;
}

const counted = (value) => value.toLocaleString('en-US');
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function deviation(values) {
  if (values.length < 2) return null;
  const middle = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1));
}
