"""Reports as one self-contained HTML file: no network, nothing to install, light and dark, on paper too."""
