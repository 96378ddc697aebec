// The element that is hardest to tell from its ground, and how many times the contrast that WCAG AA wants it has.
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const light = (colour) => {
  canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
};
const ground = (node) => {
  const colour = getComputedStyle(node).backgroundColor;
  return colour === 'rgba(0, 0, 0, 0)' ? ground(node.parentElement) : colour;
};
const ratio = (a, b) => Math.max(a, b) / Math.min(a, b);
const found = [];
for (const node of document.body.querySelectorAll('*')) {
  const isMark = node.matches('.line .stroke, .shape circle, .shape rect');
  if (!isMark && ![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) continue;
  if (node.closest('script, noscript, title, [hidden]')) continue;
  const style = getComputedStyle(node);
  const drawn = node.matches('.stroke') ? style.stroke : node instanceof SVGElement ? style.fill : style.color;
  const contrast = ratio(light(drawn), light(ground(node.closest('svg')?.parentElement || node)));
  found.push([contrast / (isMark ? 3 : 4.5), node.tagName + ' ' + node.textContent.slice(0, 30)]);
}
return found.sort((a, b) => a[0] - b[0])[0];
