// The system's choice until somebody presses the button.
{
  const button = byId('theme');
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  let dark = system.matches;
  const show = () => {
    button.textContent = dark ? 'Light' : 'Dark';
    button.setAttribute('aria-pressed', String(dark));
  };
  button.addEventListener('click', () => {
    dark = !dark;
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    show();
  });
  system.addEventListener('change', () => {
    if (!document.documentElement.dataset.theme) {
      dark = system.matches;
      show();
    }
  });
  show();
}
