'use strict';
/* Links from statements to the events they rest on. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const numbers = (text) => (text ? text.split(' ').map(Number) : []);

  /**
   * The events that the statement around an element rests on.
   * @param {Element} element
   * @returns {number[]}
   */
  foretrace.eventsAround = (element) => {
    const around = element.closest('[data-events]');
    return around ? numbers(around.dataset.events) : [];
  };

  /**
   * Let links and buttons of evidence lead into the timeline, where there is one.
   * @param {{show: Function, lanes?: any}} page
   */
  foretrace.linkEvidence = (page) => {
    for (const link of document.querySelectorAll('a.event, a.node')) {
      if (page.lanes && page.lanes.rowOfEvent(Number(link.dataset.event)) >= 0) continue;
      link.classList.add('absent');
      link.title = `${link.title} (not drawn in the timeline)`;
    }
    document.addEventListener('click', (event) => {
      const link = event.target.closest('a.event');
      const button = event.target.closest('button.show');
      const span = event.target.closest('a.span');
      if (link) {
        event.preventDefault();
        const one = Number(link.dataset.event);
        page.show(foretrace.eventsAround(link), { select: one, address: `#event-${one}` });
      } else if (button) {
        page.show(foretrace.eventsAround(button), {});
        markCurrent(button.closest('.finding'));
      } else if (span) {
        event.preventDefault();
        const [start, length] = [Number(span.dataset.start) * 1000, Number(span.dataset.length) * 1000];
        page.showTime(start, start + length);
      }
    });
  };

  function markCurrent(finding) {
    document.querySelectorAll('.finding.current').forEach((one) => one.classList.remove('current'));
    if (finding) finding.classList.add('current');
  }

  /**
   * Go on to another finding: open it and highlight its events.
   * @param {{show: Function}} page
   * @param {number} way 1 or -1
   */
  foretrace.stepFinding = (page, way) => {
    const all = [...document.querySelectorAll('.finding')];
    if (!all.length) return;
    const now = all.findIndex((one) => one.classList.contains('current'));
    const next = all[(now < 0 ? (way > 0 ? 0 : all.length - 1) : now + way + all.length) % all.length];
    next.querySelector('details').open = true;
    markCurrent(next);
    page.show(numbers(next.dataset.events), { move: false });
    next.scrollIntoView({ block: 'center' });
    next.querySelector('summary').focus({ preventScroll: true });
  };
})();
