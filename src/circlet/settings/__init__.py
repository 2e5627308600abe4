"""What a training run is told: settings and their presets."""
