'use strict';
/* What every page has: theme, contents, keys, help, paper. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);

  /** Say something to screen readers. */
  foretrace.say = (text) => {
    $('said').textContent = text;
  };

  const systemIsDark = () => window.matchMedia('(prefers-color-scheme: dark)').matches;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : systemIsDark());

  function toggleTheme() {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    nameTheme();
  }
  function nameTheme() {
    $('theme').textContent = isDark() ? 'light' : 'dark';
    $('theme').setAttribute('aria-label', `switch to ${isDark() ? 'light' : 'dark'} colours`);
  }

  const sections = () => [...document.querySelectorAll('main > section')];
  function goTo(section) {
    if (!section) return;
    section.scrollIntoView({ block: 'start' });
    section.focus({ preventScroll: true });
    history.replaceState(null, '', `#${section.id}`);
  }
  function currentSection() {
    const all = sections();
    const passed = all.filter((one) => one.getBoundingClientRect().top < 80);
    return passed.length ? passed[passed.length - 1] : all[0];
  }
  function stepSection(way) {
    const all = sections();
    goTo(all[Math.min(all.length - 1, Math.max(0, all.indexOf(currentSection()) + way))]);
  }

  function follow() {
    const links = new Map([...document.querySelectorAll('.contents a')].map((a) => [a.getAttribute('href').slice(1), a]));
    let asked = 0;
    const mark = () => {
      asked = 0;
      const now = currentSection();
      links.forEach((link, id) => (now && id === now.id ? link.setAttribute('aria-current', 'true') : link.removeAttribute('aria-current')));
      const link = now && links.get(now.id);
      const bar = link && link.closest('.contents');
      // Only the bar moves: scrollIntoView would move the page as well.
      if (bar && bar.scrollWidth > bar.clientWidth) {
        const [whole, own] = [bar.getBoundingClientRect(), link.getBoundingClientRect()];
        bar.scrollLeft += own.left + own.width / 2 - whole.left - whole.width / 2;
      }
    };
    window.addEventListener('scroll', () => (asked = asked || requestAnimationFrame(mark)), { passive: true });
    mark();
  }

  /** Whether a key belongs to what has the focus. */
  const taken = (target) => target.closest('input, textarea, select, [role="application"], [role="tree"], dialog[open]');

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || taken(event.target)) return;
    const page = foretrace.page || {};
    const keys = {
      j: () => stepSection(1),
      k: () => stepSection(-1),
      d: toggleTheme,
      t: () => {
        goTo($('section-timeline'));
        if (page.lanes) page.lanes.canvas.focus({ preventScroll: true });
      },
      n: () => page.lanes && foretrace.stepFinding(page, 1),
      p: () => page.lanes && foretrace.stepFinding(page, -1),
      '?': () => $('help').showModal(),
      Escape: () => page.clear && page.clear(),
    };
    if (/^[1-9]$/.test(event.key)) goTo(sections()[Number(event.key) - 1]);
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  }

  /** On paper everything that folds is open. */
  function onPaper() {
    const closed = [];
    window.addEventListener('beforeprint', () => {
      for (const one of document.querySelectorAll('details:not([open], .evidence details)')) {
        one.open = true;
        closed.push(one);
      }
    });
    window.addEventListener('afterprint', () => closed.splice(0).forEach((one) => (one.open = false)));
  }

  /** What the address names behind its #; a % that begins no character stands for itself. */
  foretrace.addressed = () => {
    const name = location.hash.slice(1);
    try {
      return decodeURIComponent(name);
    } catch {
      return name;
    }
  };

  /** A statement that the address names is opened. */
  foretrace.openAddressed = () => {
    const name = foretrace.addressed();
    const named = name && $(name);
    if (!named) return;
    const folded = named.querySelector(':scope > details');
    if (folded) folded.open = true;
    named.scrollIntoView({ block: 'start' });
  };

  /** Wake the shell; the sections come after it. */
  foretrace.startShell = () => {
    root.classList.remove('static');
    for (const one of document.querySelectorAll('.needs-script, #theme, #keys')) one.hidden = false;
    $('theme').addEventListener('click', toggleTheme);
    $('keys').addEventListener('click', () => $('help').showModal());
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', nameTheme);
    nameTheme();
    document.addEventListener('keydown', onKey);
    follow();
    onPaper();
    foretrace.openAddressed();
  };
})();
